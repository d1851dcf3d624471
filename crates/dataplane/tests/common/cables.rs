//! Switches with cables of shared memory.

use std::{
    env, fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use sluicegate_dataplane::{
    config::Config, count::Drop as Reason, offload::Takes, service::Service, shm::end::End,
    worker::Worker,
};

use super::{Guest, PLAIN, switch_table, until};

/// A directory; gone when dropped.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sg-cable-{}-{number}", std::process::id());
        let directory = env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        Self(directory)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.sock"))
    }

    /// The file of a switch with ports of guests, and a cable as its last port.
    pub fn text(&self, name: &str, guests: &[&str], cable: &str) -> String {
        let line = |key: &str, name: &str| format!("{key} = \"{}\"\n", self.at(name).display());
        let mut text = switch_table(&line("socket", name));
        for guest in guests {
            text += &format!(
                "[[port]]\nname = \"{guest}\"\n{}",
                line("vhost_user", guest)
            );
        }
        text + &format!(
            "[[port]]\nname = \"cable\"\n{}{cable}\n",
            line("shm", "cable")
        )
    }

    pub fn switch(&self, name: &str, guests: &[&str], cable: &str) -> Switch {
        let config = Config::parse(name, &self.text(name, guests, cable)).expect("a file");
        Switch(Arc::new(Service::start(config).expect("a switch")))
    }

    pub fn guest(&self, name: &str, features: u64) -> Guest {
        Guest::connect(&self.at(name), features)
    }

    pub fn end(&self) -> End {
        let mut end = None;
        until("a cable", || {
            end = End::connect(&self.at("cable"), Takes::default()).ok();
            end.is_some()
        });
        end.expect("a cable")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running switch; ended when dropped.
pub struct Switch(pub Arc<Service>);

impl Switch {
    pub fn ask<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> T {
        self.0.handle().call(order).expect("it runs")
    }

    pub fn is_up(&self, port: u16) -> bool {
        self.ask(move |worker| {
            let bay = worker.engine.bay_mut(port);
            bay.is_some_and(|bay| bay.port.is_up())
        })
    }

    pub fn until_up(&self, port: u16) {
        until("a cable", || self.is_up(port));
    }

    pub fn drops(&self, port: u16, reason: Reason) -> u64 {
        self.ask(move |worker| {
            let bay = worker.engine.bay_mut(port).expect("a port");
            bay.counters.drops[reason as usize]
        })
    }

    pub fn dropped(&self) -> u64 {
        self.ask(|worker| {
            let bays = worker.engine.bays();
            bays.map(|(_, bay)| bay.counters.dropped()).sum()
        })
    }

    pub fn closed(&self, port: u16) -> Option<String> {
        self.ask(move |worker| {
            worker
                .engine
                .bay_mut(port)
                .and_then(|bay| bay.closed.clone())
        })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Two switches with a cable between them, and a guest at each.
pub fn two(cable: &str) -> (Place, [Switch; 2], [Guest; 2]) {
    let place = Place::new();
    let left = place.switch("left", &["a"], cable);
    let right = place.switch("right", &["b"], "listen = false");
    left.until_up(1);
    right.until_up(1);
    let guests = [place.guest("a", PLAIN), place.guest("b", PLAIN)];
    (place, [left, right], guests)
}
