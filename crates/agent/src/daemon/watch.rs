//! News of one file, however it is written: in place, or by a new one that takes its name.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};

/// Quiet after which a file is taken to be written.
const QUIET: Duration = Duration::from_millis(100);
/// How long news may go on before it is looked at all the same.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches the directory of a file, since editors put a new file in the place of the old one.
#[derive(Debug)]
pub(super) struct FileWatch {
    inotify: Inotify,
    directory: PathBuf,
    /// Names of which news counts; `None` = any. A link may lead through others (as in Kubernetes'
    /// volumes).
    name: Option<OsString>,
    /// Times of the first and the last event that are not handled yet.
    pending: Option<(Instant, Instant)>,
}

impl FileWatch {
    /// Watches the file at `path`, which need not exist.
    ///
    /// # Errors
    /// Its directory does not exist, or no more watches can be had.
    pub(super) fn new(path: &Path) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .context("watching the policy file")?;
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let is_link = fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink());
        let watch = Self {
            inotify,
            directory,
            name: path
                .file_name()
                .filter(|_| !is_link)
                .map(OsStr::to_os_string),
            pending: None,
        };
        watch.renew()?;
        Ok(watch)
    }

    /// Watches again: the directory may be another one by now.
    ///
    /// # Errors
    /// As [`FileWatch::new`].
    pub(super) fn renew(&self) -> Result<()> {
        let news = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_ONLYDIR;
        self.inotify
            .add_watch(&self.directory, news)
            .with_context(|| format!("watching {}", self.directory.display()))?;
        Ok(())
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
                Err(error) => return Err(error).context("watching the policy file"),
            };
            // An event without a name is about the directory, or says that others were lost.
            let counts = |name: &Option<OsString>| {
                self.name.is_none() || name.is_none() || *name == self.name
            };
            if events.iter().any(|event| counts(&event.name)) {
                let now = Instant::now();
                let (first, _) = self.pending.unwrap_or((now, now));
                self.pending = Some((first, now));
            }
        }
    }

    /// When to look at the file: once it has been quiet for a moment. `None` = no news.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending
            .map(|(first, last)| (last + QUIET).min(first + PATIENCE))
    }

    /// The news have been looked at.
    pub(super) fn done(&mut self) {
        self.pending = None;
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
