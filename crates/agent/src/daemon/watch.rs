//! News of one file, however it is written: in place, or by a new one that takes its name.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
};

use super::reserve::Reserve;

/// Quiet after which a file is taken to be written.
const QUIET: Duration = Duration::from_millis(100);
/// How long news may go on before it is looked at all the same.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches the directory of a file, since editors put a new file in the place of the old one.
#[derive(Debug)]
pub(super) struct FileWatch {
    inotify: Inotify,
    path: PathBuf,
    directory: PathBuf,
    /// Names of which news counts; `None` = any. A link may lead through others (as in Kubernetes'
    /// volumes).
    name: Option<OsString>,
    /// Where the file itself is: the watch of its directory, and its name.
    file: Option<(WatchDescriptor, OsString)>,
    /// Times of the first and the last event that are not handled yet.
    pending: Option<(Instant, Instant)>,
    /// A writer has changed it, and has not closed it since.
    is_being_written: bool,
    /// It was made at its place, and not renamed into it.
    is_created: bool,
}

impl FileWatch {
    /// Watches the file at `path`, which need not exist.
    ///
    /// # Errors
    /// Its directory does not exist, or no more watches or descriptors can be had.
    pub(super) fn new(path: &Path) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC);
        let inotify = inotify.map_err(|error| no_inotify(error, Reserve::take()))?;
        let is_link = fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink());
        let mut watch = Self {
            inotify,
            path: path.to_owned(),
            directory: directory_of(path),
            name: path
                .file_name()
                .filter(|_| !is_link)
                .map(OsStr::to_os_string),
            file: None,
            pending: None,
            is_being_written: false,
            is_created: false,
        };
        watch.renew()?;
        Ok(watch)
    }

    /// Watches again: the directory may be another one by now, and a link may lead elsewhere.
    ///
    /// # Errors
    /// As [`FileWatch::new`].
    pub(super) fn renew(&mut self) -> Result<()> {
        self.watch(&self.directory)?;
        let Ok(real) = fs::canonicalize(&self.path) else {
            return Ok(());
        };
        let watched = self.watch(&directory_of(&real))?;
        let file = real.file_name().map(|name| (watched, name.to_owned()));
        if file != self.file {
            self.file = file;
            self.is_being_written = false;
        }
        Ok(())
    }

    fn watch(&self, directory: &Path) -> Result<WatchDescriptor> {
        let news = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_ONLYDIR;
        self.inotify
            .add_watch(directory, news)
            .map_err(|error| match error {
                Errno::ENOSPC => {
                    anyhow!("no more watches: raise fs.inotify.max_user_watches (sysctl)")
                }
                error => error.into(),
            })
            .with_context(|| format!("watching {}", directory.display()))
    }

    /// Takes news in.
    ///
    /// # Errors
    /// The kernel refused.
    pub(super) fn take(&mut self) -> Result<()> {
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error).context("reading news"),
            };
            events.iter().for_each(|event| self.see(event));
        }
    }

    fn see(&mut self, event: &InotifyEvent) {
        let file = self.file.as_ref();
        let is_file = file.is_some_and(|(watched, name)| {
            *watched == event.wd && event.name.as_ref() == Some(name)
        });
        // An event without a name is about the directory, or says that others were lost.
        if !is_file && self.name.is_some() && event.name.is_some() && event.name != self.name {
            return;
        }
        let is = |flag| event.mask.contains(flag);
        if is(AddWatchFlags::IN_MODIFY) {
            self.is_being_written |= is_file;
            return;
        }
        if is_file || event.name.is_none() {
            self.is_being_written = false;
        }
        if is(AddWatchFlags::IN_CREATE) && (is_file || self.name.is_some()) {
            self.is_created = true;
        }
        if is(AddWatchFlags::IN_MOVED_TO) {
            self.is_created = false;
        }
        let now = Instant::now();
        let (first, _) = self.pending.unwrap_or((now, now));
        self.pending = Some((first, now));
    }

    /// Whether a writer has it open and has changed it: it is looked at when that has closed it.
    pub(super) fn is_being_written(&self) -> bool {
        self.is_being_written
    }

    /// Whether it was made at its place, and not renamed into it, since it was looked at last.
    pub(super) fn is_created(&self) -> bool {
        self.is_created
    }

    /// When to look at the file: once it has been quiet for a moment. `None` = no news, or it is
    /// being written.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending
            .filter(|_| !self.is_being_written)
            .map(|(first, last)| (last + QUIET).min(first + PATIENCE))
    }

    /// The news have been looked at.
    pub(super) fn done(&mut self) {
        self.pending = None;
        self.is_created = false;
    }
}

/// EMFILE has two reasons, between which `descriptors` decides: whether there are any for others.
fn no_inotify(error: Errno, descriptors: Result<Reserve>) -> anyhow::Error {
    match (error, descriptors) {
        (Errno::EMFILE, Ok(_)) => anyhow!(
            "no more inotify instances for this user: raise fs.inotify.max_user_instances (sysctl)"
        ),
        (Errno::EMFILE, Err(error)) => error.context("no inotify"),
        (error, _) => anyhow!("no inotify: {error}"),
    }
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_news(watch: &mut FileWatch) -> bool {
        watch.take().unwrap();
        let due = watch.due().is_some();
        watch.done();
        due
    }

    #[test]
    fn every_way_to_write_a_file_is_news_and_other_files_are_not() {
        let directory = std::env::temp_dir().join(format!("sga-{}-watch", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("policy.toml");
        let mut watch = FileWatch::new(&path).unwrap();
        assert!(!has_news(&mut watch));
        fs::write(&path, "a").unwrap();
        assert!(has_news(&mut watch));
        fs::write(directory.join("other"), "a").unwrap();
        assert!(!has_news(&mut watch));
        fs::rename(directory.join("other"), &path).unwrap();
        assert!(has_news(&mut watch));
        fs::remove_file(&path).unwrap();

        // As Kubernetes does it: the file is a link through one that is replaced.
        fs::create_dir(directory.join("1")).unwrap();
        fs::write(directory.join("1/policy.toml"), "b").unwrap();
        std::os::unix::fs::symlink("1", directory.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/policy.toml", &path).unwrap();
        let mut watch = FileWatch::new(&path).unwrap();
        std::os::unix::fs::symlink("1", directory.join("..next")).unwrap();
        fs::rename(directory.join("..next"), directory.join("..data")).unwrap();
        assert!(has_news(&mut watch));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_a_writer_has_open_is_looked_at_when_it_is_closed() {
        let directory = std::env::temp_dir().join(format!("sga-{}-writer", std::process::id()));
        fs::create_dir_all(directory.join("real")).unwrap();
        let (real, link) = (directory.join("real/policy.toml"), directory.join("link"));
        fs::write(&real, "a").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for path in [&real, &link] {
            let mut watch = FileWatch::new(path).unwrap();
            let mut writer = fs::File::create(&real).unwrap();
            std::io::Write::write_all(&mut writer, b"ab").unwrap();
            watch.take().unwrap();
            assert!(
                watch.is_being_written() && watch.due().is_none(),
                "{path:?}"
            );
            drop(writer);
            watch.take().unwrap();
            assert!(
                !watch.is_being_written() && watch.due().is_some(),
                "{path:?}"
            );
            assert!(!watch.is_created(), "{path:?}");
        }
        let mut watch = FileWatch::new(&real).unwrap();
        fs::remove_file(&real).unwrap();
        fs::write(&real, "b").unwrap();
        watch.take().unwrap();
        assert!(watch.is_created());
        fs::write(directory.join("real/next"), "c").unwrap();
        fs::rename(directory.join("real/next"), &real).unwrap();
        watch.take().unwrap();
        assert!(!watch.is_created());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn an_error_of_inotify_names_its_reason() {
        let said = |error, descriptors| format!("{:#}", no_inotify(error, descriptors));
        let none_left = || Err(anyhow!("no descriptors are left of 1024"));
        assert!(said(Errno::EMFILE, Reserve::take()).contains("max_user_instances"));
        let process = said(Errno::EMFILE, none_left());
        assert_eq!(process, "no inotify: no descriptors are left of 1024");
        let other = said(Errno::ENOMEM, none_left());
        assert!(
            other.starts_with("no inotify: ENOMEM") && !other.contains("1024"),
            "{other}"
        );
    }

    #[test]
    fn news_that_never_end_are_looked_at_after_a_while() {
        let mut watch = FileWatch::new(&std::env::temp_dir().join("x")).unwrap();
        assert_eq!(watch.due(), None);
        let now = Instant::now();
        watch.pending = Some((now, now + Duration::from_secs(60)));
        assert_eq!(watch.due(), Some(now + PATIENCE));
        watch.pending = Some((now, now));
        assert_eq!(watch.due(), Some(now + QUIET));
    }
}
