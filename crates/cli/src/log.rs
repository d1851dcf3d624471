//! How the agent logs.

use std::{
    fmt,
    io::{self, IsTerminal},
    panic,
};

use sluicegate_agent::log::{self, Lines};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::{
    fmt::{
        FmtContext,
        format::{FormatEvent, FormatFields, Writer},
    },
    registry::LookupSpan,
};

use crate::output;

/// The shape of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A line for people, with the time; colours on a terminal only
    #[default]
    Text,
    /// One JSON object a line: `timestamp`, `level`, `message`, and a key for each field
    Json,
    /// A line with a priority prefix (`<6>`) and without the time, which systemd's journal has
    /// already
    Journal,
}

/// Logs to standard error from now on, panics of threads included. What cannot be written is lost,
/// and nothing else comes of it.
pub fn begin(format: Format, verbose: bool) {
    let level = if verbose { Level::DEBUG } else { Level::INFO };
    if let Err(error) = log::begin() {
        output::say(&format!("nothing is logged: {error:#}"));
    }
    panic::set_hook(Box::new(|panicked| {
        tracing::error!("{panicked}");
        log::flush();
    }));
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(colour)
        .log_internal_errors(false)
        .with_writer(|| Lines);
    match format {
        Format::Text => builder.init(),
        Format::Json => builder.json().flatten_event(true).init(),
        Format::Journal => builder.event_format(Journal).init(),
    }
}

/// See [`Format::Journal`] (sd-daemon(3)).
struct Journal;

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// The priority of syslog.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
