//! A switch as a process of its own, for tests that kill it or put another in its place:
//! `test-switch FILE [--take-over]`. It runs until it is killed, or until another took over.

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use anyhow::Context;
use sluicegate_dataplane::{config::Config, control, service::Service};

fn main() -> anyhow::Result<()> {
    let file = PathBuf::from(std::env::args_os().nth(1).context("a file")?);
    let config = Config::read(&file)?;
    let socket = config.socket.clone();
    let service = if std::env::args().nth(2).is_some() {
        let (service, listener, outage_ns) = Service::take_over(config)?;
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
