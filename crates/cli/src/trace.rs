//! `sluicegate trace`.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::{Child, ExitStatus},
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use sluicegate_program::goal;
use sluicegate_trace::{
    merge::{self, Figures, Merged},
    record,
};

use crate::{
    columns::{Align, bytes, table},
    interrupt,
    output::{self, Failure},
};

/// Between two looks whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  sluicegate trace -- mpirun -n 64 --oversubscribe ./program
  sluicegate trace --out cg.goal --scale-computation 0.5 -- mpirun -n 16 --oversubscribe ./cg input
  sluicegate trace --out big.bin -- mpirun -n 256 --oversubscribe ./program

A name that ends in .bin gets the binary form of GOAL, any other the text. A scenario runs the file:
  [traffic.cg]
  kind = \"program\"
  goal = \"cg.goal\"

Computation is the CPU time of a rank between its calls of MPI, so that more ranks than cores are
fine. The library that records is compiled with $MPICC or mpicc (Debian: openmpi-bin,
libopenmpi-dev). Ranks on other machines need its environment (mpirun -x LD_PRELOAD
-x SLUICEGATE_TRACE) and --traces in a directory that all of them share.

Exit code 1 if the command fails; what was recorded up to there is written all the same.";

/// Run an MPI program, record what its ranks send and compute, and write it as GOAL
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// File for the program; .bin for the binary form
    #[arg(long, value_name = "FILE", default_value = "trace.goal")]
    out: PathBuf,
    /// Multiply the time of computations, for other CPUs than these
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = scale)]
    scale_computation: f64,
    /// Keep what each rank has recorded in this directory, which is new or empty
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// The command, usually mpirun
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn scale(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "a number from 0 on".to_owned())
}

/// A directory for the library and, unless they are kept, the traces.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let name = format!("sluicegate-trace-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `sluicegate trace`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let scratch = Scratch::new()?;
    let traces = directory(args, &scratch)?;
    let library = record::build(&scratch.0)?;
    interrupt::install()?;
    let name = args.command[0].to_string_lossy().into_owned();
    let status = start(&args.command, &name, &library, &traces)?;
    let (files, again) = record::traces(&traces)?;
    if files.is_empty() {
        return Err(no_traces(&name, status).into());
    }
    let mut merged = merge::merge(&files, args.scale_computation).map_err(anyhow::Error::from)?;
    if again {
        let note = "a second MPI program ran, or ranks that the first has started: not recorded";
        merged.figures.notes.push(note.to_owned());
    }
    let context = || format!("writing {}", args.out.display());
    let size = write(args, &merged).with_context(context)?;
    output::print(&show(args, &merged, size))?;
    if interrupt::requested() {
        return Err(Failure::Interrupted);
    }
    match status.success() {
        true => Ok(()),
        false => Err(anyhow!(
            "{name} has failed ({status}); {} has what was recorded up to there",
            args.out.display()
        )
        .into()),
    }
}

/// Where traces go; ranks may change their directory.
fn directory(args: &Args, scratch: &Scratch) -> Result<PathBuf, Failure> {
    let traces = args.traces.as_ref();
    let path = traces.map_or_else(|| scratch.0.join("traces"), Clone::clone);
    let context = || format!("making {}", path.display());
    fs::create_dir_all(&path).with_context(context)?;
    if fs::read_dir(&path).with_context(context)?.next().is_some() {
        return Err(Failure::BadInput(format!(
            "--traces {}: the directory is not empty",
            path.display()
        )));
    }
    Ok(fs::canonicalize(&path).with_context(context)?)
}

fn start(
    words: &[OsString],
    name: &str,
    library: &Path,
    traces: &Path,
) -> anyhow::Result<ExitStatus> {
    let child = record::command(words, library, traces).spawn();
    let mut child = child.map_err(|error| match (error.kind(), name) {
        (io::ErrorKind::NotFound, "mpirun" | "mpiexec" | "orterun") => {
            anyhow!("there is no {name}; on Debian: apt-get install openmpi-bin")
        }
        (io::ErrorKind::NotFound, _) => anyhow!("there is no command {name}"),
        _ => anyhow!("cannot start {name}: {error}"),
    })?;
    await_end(&mut child).with_context(|| format!("waiting for {name}"))
}

/// Waits for the command, and asks it to end when the user asks this one: a signal that only this
/// process has got leaves no ranks behind.
fn await_end(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt::requested() && !asked {
            asked = true;
            // It is not waited for yet, so that the number is still its own.
            kill_process(Pid::from_child(child), Signal::TERM)?;
        }
        thread::sleep(LOOK);
    }
}

fn no_traces(name: &str, status: ExitStatus) -> anyhow::Error {
    match status.success() {
        true => anyhow!(
            "no rank has written a trace: {name} has run no MPI program, one that MPI is linked \
             into statically, or one that calls MPI from Fortran only"
        ),
        false => anyhow!("{name} has failed ({status}) before a rank has called MPI_Init"),
    }
}

/// Writes the program; returns the bytes of the file.
fn write(args: &Args, merged: &Merged) -> io::Result<u64> {
    let mut file = BufWriter::new(File::create(&args.out)?);
    match args.out.extension().is_some_and(|end| end == "bin") {
        true => file.write_all(&goal::binary::write(&merged.program))?,
        false => goal::text::write(&merged.program, &head(args), &mut file)?,
    }
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(file.metadata()?.len())
}

/// What a text says of itself.
fn head(args: &Args) -> Vec<String> {
    let words = args.command.iter().map(|word| word.to_string_lossy());
    let command = words.collect::<Vec<_>>().join(" ");
    vec![
        format!("recorded by sluicegate trace: {command}"),
        format!("computation in ns, x {}", args.scale_computation),
    ]
}

fn show(args: &Args, merged: &Merged, size: u64) -> String {
    let figures = &merged.figures;
    let mut rows = vec![
        vec!["ranks".to_owned(), merged.program.ranks.len().to_string()],
        vec![
            "operations".to_owned(),
            merged.program.operations().to_string(),
        ],
    ];
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    row("messages between two ranks", figures.messages.to_string());
    row(
        "messages of collectives",
        figures.collective_messages.to_string(),
    );
    let count = figures.messages + figures.collective_messages;
    let sum = figures.bytes + figures.collective_bytes;
    row("bytes of all messages", bytes(sum));
    row("bytes of a message, mean", bytes(sum / count.max(1)));
    row("bytes of a message, largest", bytes(figures.largest));
    row("receives from any source or tag", figures.wild.to_string());
    let times = &figures.computing_ns;
    let mean = times.iter().sum::<u64>() / times.len().max(1) as u64;
    row("computation of a rank, mean", seconds(mean));
    let most = times.iter().max().copied().unwrap_or(0);
    row("computation of a rank, most", seconds(most));
    let (computing, cpu) = figures.computing_of;
    let share = match cpu {
        0 => "-".to_owned(),
        cpu => format!("{:.0} %", 100.0 * computing as f64 / cpu as f64),
    };
    row("computation of CPU time", share);
    let mut text = table(&[("figure", Align::Left), ("", Align::Right)], &rows);
    text += &collectives(figures);
    for note in &figures.notes {
        text += &format!("note: {note}\n");
    }
    text += &format!("\n{}: {} bytes\n", args.out.display(), size);
    text
}

fn collectives(figures: &Figures) -> String {
    if figures.collectives.is_empty() {
        return String::new();
    }
    let rows = figures.collectives.iter();
    let rows: Vec<_> = rows
        .map(|(name, count)| vec![name.clone(), count.to_string()])
        .collect();
    let head = [("collective", Align::Left), ("calls", Align::Right)];
    format!("\n{}", table(&head, &rows))
}

fn seconds(ns: u64) -> String {
    format!("{:.6} s", ns as f64 / 1e9)
}
