//! A switch as a process of its own, for tests that kill it or put another in its place:
//! `test-switch FILE [--take-over]`. It runs until it is killed, or until another took over.
//! Where it was too late to take over it tries again as the command does, as the same process.

use std::{
    env, os::unix::process::CommandExt, path::PathBuf, process::Command, sync::Arc, thread,
    time::Duration,
};

use anyhow::Context;
use sluicegate_dataplane::{
    config::Config,
    control,
    service::Service,
    upgrade::{Refused, Remedy},
};

/// How often it tries, and the variable that numbers attempts.
const ATTEMPTS_MAX: u32 = 50;
const ATTEMPT: &str = "TEST_SWITCH_ATTEMPT";

/// Between two attempts: guests have their frames meanwhile.
const BETWEEN: Duration = Duration::from_millis(50);

fn main() -> anyhow::Result<()> {
    let file = PathBuf::from(std::env::args_os().nth(1).context("a file")?);
    let config = Config::read(&file)?;
    let socket = config.socket.clone();
    let service = if std::env::args().nth(2).is_some() {
        let taken = Service::take_over(config);
        let (service, listener, outage_ns) = taken.map_err(again)?;
        println!("{outage_ns}");
        let service = Arc::new(service);
        control::go_on(listener, file, Arc::clone(&service))?;
        service
    } else {
        let service = Arc::new(Service::start(config)?);
        control::serve(&socket, file, Arc::clone(&service))?;
        service
    };
    while !service.has_ended() && !service.is_replaced() {
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// After an attempt that failed: the next one where the running switch says that this one was too
/// slow. Returns why there is none.
fn again(error: anyhow::Error) -> anyhow::Error {
    let attempt = env::var(ATTEMPT).ok().and_then(|text| text.parse().ok());
    let attempt: u32 = attempt.unwrap_or(1);
    if Refused::of(&error).remedy != Remedy::Again || attempt >= ATTEMPTS_MAX {
        return error;
    }
    let mut arguments = env::args_os();
    let Some(program) = arguments.next() else {
        return error;
    };
    thread::sleep(BETWEEN);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(ATTEMPT, (attempt + 1).to_string());
    command.exec().into()
}
