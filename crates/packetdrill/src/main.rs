//! `packetdrill [OPTIONS] FILE.pkt… FOLDER…`: runs packetdrill scripts against the TCP endpoint.

mod table;

use std::{
    fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use sluicegate_packetdrill::{Comparison, Problem, SLACK_NS, Settings, Verdict, check};

use table::Table;

const USAGE: &str = "\
usage: packetdrill [OPTIONS] FILE.pkt… FOLDER…

Runs packetdrill scripts against the TCP endpoint, in virtual time, without privileges. Of a folder
it runs all scripts below it. Prints pass, fail or unsupported for each; the exit code is 0 if none
has failed, 1 if one has, 2 when the command line names no options or files that can be used.

  --against-kernel      run each script on this kernel's TCP as well, in a network namespace of its own
                        (root), and tell where ours differs: same, differs or not run for each; the
                        exit code is 1 if one differs. With --table only what fails, to find scripts
                        written for another kernel
  --table               how many of each folder are understood, pass and fail, and why not
  --json                one JSON document instead of lines
  --stack=NAME          linux or freebsd9; default: as a script's parameters are called
  --strict              segments left over at the end are a failure
  --psh                 compare PSH
  -D NAME=VALUE         what a word in the scripts stands for
  --sysctl=NAME=VALUE   a parameter that the machine has before a script sets any
  --tolerance_usecs=N   what times may be off by (default 4000)
  --tolerance_percent=N the same, in percent of the time since the last event (default 12.5)
  --NAME=VALUE          any other option that a script may have; wins over the script's
";

/// How results are printed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Lines,
    Json,
    Table,
}

/// The arguments of the command line.
#[derive(Default)]
struct Arguments {
    settings: Settings,
    form: Form,
    against_kernel: bool,
    files: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) if !arguments.files.is_empty() => arguments,
        Ok(_) => return usage(""),
        Err(reason) => return usage(&reason),
    };
    let scripts = match read(&arguments.files) {
        Ok(scripts) => scripts,
        Err(reason) => {
            complain(&format!("packetdrill: {reason}\n"));
            return ExitCode::from(2);
        }
    };
    if arguments.against_kernel && arguments.form != Form::Table {
        return against_kernel(&arguments, &scripts);
    }
    let mut report = Report::new(["passed", "failed", "unsupported"]);
    for (file, text) in &scripts {
        let verdict = check(text, &arguments.settings_of(file));
        report.table.add(file, &verdict);
        if let (Verdict::Fail(problem), true) = (&verdict, arguments.against_kernel) {
            let same = kernel_agrees(&arguments, file, text, problem.line);
            report.table.add_kernel(same);
        }
        let (kind, word, problem) = match verdict {
            Verdict::Pass => (0, "pass", None),
            Verdict::Fail(problem) => (1, "fail", Some(problem)),
            Verdict::Unsupported(problem) => (2, "unsupported", Some(problem)),
        };
        report.add(file, kind, word, problem.as_ref(), arguments.form);
    }
    report.end(arguments.form)
}

/// Every script on the endpoint and on this kernel.
fn against_kernel(arguments: &Arguments, scripts: &[(String, String)]) -> ExitCode {
    let mut report = Report::new(["same", "differ", "not run"]);
    for (file, text) in scripts {
        let settings = arguments.settings_of(file);
        let (kind, word, problem) = match compare(text, &settings, folder(file), SLACK_NS) {
            Comparison::Same => (0, "same", None),
            Comparison::Differs(problem) => (1, "differs", Some(problem)),
            Comparison::NotRun(problem) => (2, "not run", Some(problem)),
        };
        report.add(file, kind, word, problem.as_ref(), arguments.form);
    }
    report.end(arguments.form)
}

/// Whether this kernel does what the endpoint does up to a line at which the script fails. Times
/// may not differ by more than the script allows, so that a kernel that is late is no witness.
fn kernel_agrees(arguments: &Arguments, file: &str, text: &str, line: usize) -> bool {
    match compare(text, &arguments.settings_of(file), folder(file), 0) {
        Comparison::Same => true,
        Comparison::Differs(problem) => problem.line > line,
        Comparison::NotRun(_) => false,
    }
}

/// Where the commands of a script run.
fn folder(file: &str) -> &Path {
    match Path::new(file).parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(target_os = "linux")]
fn compare(text: &str, settings: &Settings, folder: &Path, slack_ns: u64) -> Comparison {
    sluicegate_packetdrill::against_kernel(text, settings, folder, slack_ns)
}

#[cfg(not(target_os = "linux"))]
fn compare(_: &str, _: &Settings, _: &Path, _: u64) -> Comparison {
    let text = "this kernel is not Linux".to_owned();
    Comparison::NotRun(Problem { line: 1, text })
}

/// Name and text of every script; nothing runs before all are there.
fn read(names: &[String]) -> Result<Vec<(String, String)>, String> {
    let unreadable = |path: &Path, error| format!("{}: cannot be read: {error}", path.display());
    let mut scripts = Vec::new();
    for name in names {
        let mut files = Vec::new();
        let path = PathBuf::from(name);
        if path.is_dir() {
            collect(&path, &mut files).map_err(|error| unreadable(&path, error))?;
            if files.is_empty() {
                return Err(format!("{name}: no script (*.pkt) below it"));
            }
        } else {
            files.push(path);
        }
        for file in files {
            let bytes = fs::read(&file).map_err(|error| unreadable(&file, error))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            scripts.push((file.display().to_string(), text));
        }
    }
    Ok(scripts)
}

/// The scripts below a folder, in order. Links are not followed.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut paths: Vec<_> = entries
        .into_iter()
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "pkt") {
            files.push(path);
        }
    }
    Ok(())
}

fn usage(reason: &str) -> ExitCode {
    if reason.is_empty() {
        say(USAGE);
    } else {
        complain(&format!("packetdrill: {reason}\n\n{USAGE}"));
    }
    ExitCode::from(2)
}

fn arguments(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" => arguments.form = Form::Json,
            "--table" => arguments.form = Form::Table,
            "--strict" => arguments.settings.strict = true,
            "--against-kernel" => arguments.against_kernel = true,
            "--psh" => arguments.settings.compare_psh = true,
            "--help" | "-h" => return Ok(Arguments::default()),
            "-D" | "--define" => {
                let pair = words.next().unwrap_or_default();
                arguments.settings.defines.push(split(&pair)?);
            }
            "--" => arguments.files.extend(words.by_ref()),
            _ => match word.strip_prefix("--") {
                Some(option) => {
                    let (name, value) = option.split_once('=').unwrap_or((option, ""));
                    arguments.option(name, value)?;
                }
                None => arguments.files.push(word),
            },
        }
    }
    let not_understood = |reason| format!("not understood: {reason}");
    arguments.settings.check().map_err(not_understood)?;
    Ok(arguments)
}

impl Arguments {
    /// The settings for a script; those of the public suites whose names end in `v6` are of IPv6.
    fn settings_of(&self, file: &str) -> Settings {
        Settings {
            ipv6: file.ends_with("v6.pkt"),
            ..self.settings.clone()
        }
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "define" {
            self.settings.defines.push(split(value)?);
        } else if name == "stack" {
            self.settings.stack = Some(value.to_owned());
        } else {
            let pair = (name.to_owned(), value.to_owned());
            self.settings.options.push(pair);
        }
        Ok(())
    }
}

fn split(pair: &str) -> Result<(String, String), String> {
    match pair.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!("{pair:?} is no NAME=VALUE")),
    }
}

/// The results so far.
struct Report {
    /// What scripts may come to, and how many have; the second is a failure.
    kinds: [&'static str; 3],
    counts: [usize; 3],
    /// Objects of the JSON document.
    objects: Vec<String>,
    table: Table,
}

impl Report {
    fn new(kinds: [&'static str; 3]) -> Self {
        Self {
            kinds,
            counts: [0; 3],
            objects: Vec::new(),
            table: Table::default(),
        }
    }

    fn add(&mut self, file: &str, kind: usize, word: &str, problem: Option<&Problem>, form: Form) {
        self.counts[kind] += 1;
        match (form, problem) {
            (Form::Json, problem) => self.objects.push(object(file, word, problem)),
            (Form::Table, _) => (),
            (Form::Lines, None) => say(&format!("{word} {file}\n")),
            (Form::Lines, Some(problem)) => say(&format!("{word} {file}:{problem}\n")),
        }
    }

    fn end(&self, form: Form) -> ExitCode {
        let each = || self.kinds.iter().zip(self.counts);
        match form {
            Form::Json => {
                let objects = self.objects.join(",\n    ");
                let counts: Vec<_> = each()
                    .map(|(kind, count)| format!("  \"{}\": {count}", kind.replace(' ', "_")))
                    .collect();
                say(&format!("{{\n  \"scripts\": [\n    {objects}\n  ],\n"));
                say(&format!("{}\n}}\n", counts.join(",\n")));
            }
            Form::Table => say(&self.table.to_string()),
            Form::Lines => {
                let counts: Vec<_> = each()
                    .map(|(kind, count)| format!("{count} {kind}"))
                    .collect();
                say(&format!("{}\n", counts.join(", ")));
            }
        }
        ExitCode::from(u8::from(self.counts[1] > 0))
    }
}

/// Writes to the standard output. A reader that has gone changes no result; a report that cannot be
/// written is an error.
fn say(text: &str) {
    let written = std::io::stdout().write_all(text.as_bytes());
    let failed = written
        .err()
        .filter(|error| error.kind() != ErrorKind::BrokenPipe);
    if let Some(error) = failed {
        complain(&format!(
            "packetdrill: the report cannot be written: {error}\n"
        ));
        std::process::exit(2);
    }
}

/// Writes to the standard error. A closed one changes no result.
fn complain(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn object(file: &str, result: &str, problem: Option<&Problem>) -> String {
    let (file, result) = (quote(file), quote(result));
    match problem {
        None => format!("{{\"file\": {file}, \"result\": {result}}}"),
        Some(Problem { line, text }) => {
            let reason = quote(text);
            format!(
                "{{\"file\": {file}, \"result\": {result}, \"line\": {line}, \"reason\": {reason}}}"
            )
        }
    }
}

/// A JSON string.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            char if char.is_control() => quoted.push_str(&format!("\\u{:04x}", char as u32)),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
