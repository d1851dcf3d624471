//! `poll` and `epoll`: what a descriptor is ready for.

use sluicegate_tcp::State;

use super::{Answer, Call, Error, Expr, Host, Step, Stop, Value, Waits};
use crate::{
    memory::Memory,
    socket::{Interest, Other, Role},
};

const IN: u32 = 1;
const OUT: u32 = 4;
const ERR: u32 = 8;
const HUP: u32 = 0x10;
const RDHUP: u32 = 0x2000;

impl Host {
    pub(super) fn readiness(&mut self, call: &Call) -> Step<Answer> {
        match (call.name.as_str(), &call.result) {
            ("epoll_create" | "epoll_create1", Expr::Integer(fd)) => {
                Ok(self.install_other(*fd, Other::Epoll(Vec::new())))
            }
            ("epoll_ctl", _) => self.epoll_ctl(call),
            ("epoll_wait", _) => self.epoll_wait(call),
            ("poll", _) => self.poll(call),
            _ => self.unknown("epoll_create without a number"),
        }
    }

    /// The events that a socket is ready for, and how often it has woken its waiters.
    fn ready(&mut self, fd: i64) -> (u32, u64) {
        let (space, memory) = (self.space(), self.memory);
        let Some(socket) = self.sockets.get(&fd) else {
            return (HUP | ERR, 0);
        };
        let connection = self.connection.as_mut();
        match socket.role {
            Role::Fresh if socket.deferred => (OUT, 0),
            Role::Fresh => (OUT | HUP, 0),
            Role::Listener => {
                let waits = connection
                    .as_ref()
                    .is_some_and(|it| it.passive && it.established && !it.owned);
                let wakeups = connection.map_or(0, |it| it.wakeups);
                (if waits { IN } else { 0 }, wakeups)
            }
            Role::Connection(number) => {
                let Some(open) = connection.filter(|it| it.number == number) else {
                    return (IN | OUT | HUP, 0);
                };
                let state = open.endpoint.state();
                let over = state == State::Closed;
                let finished = over
                    || matches!(
                        state,
                        State::CloseWait | State::LastAck | State::Closing | State::TimeWait
                    );
                if memory != Memory::Bytes {
                    open.writable = memory.is_writable(&open.endpoint, space);
                }
                let when = |holds: bool, event: u32| if holds { event } else { 0 };
                let events = when(open.is_readable(), IN)
                    | when(finished, IN | RDHUP)
                    | when((open.established && open.writable) || over, OUT)
                    | when(open.error.is_some() || !open.notices.is_empty(), ERR)
                    | when(over || state == State::TimeWait, HUP);
                (events, open.wakeups)
            }
        }
    }

    fn epoll_ctl(&mut self, call: &Call) -> Step<Answer> {
        let (Some(epoll), Some(fd)) = (call.integer(0), call.integer(2)) else {
            return self.unknown("epoll_ctl without numbers");
        };
        let wanted = call
            .arguments
            .get(3)
            .and_then(|event| event.field("events"));
        let words = wanted.map_or(Vec::new(), Expr::words);
        let interest = Interest {
            fd,
            events: mask(&words),
            edge: words.contains(&"EPOLLET"),
            once: words.contains(&"EPOLLONESHOT"),
            spent: false,
            seen: None,
        };
        let watched = self.sockets.contains_key(&fd);
        let Some(Other::Epoll(list)) = self.others.get_mut(&epoll) else {
            return Ok(Error("EBADF"));
        };
        let at = list.iter().position(|known| known.fd == fd);
        let words = call.words(1);
        Ok(match (words.first(), at) {
            _ if !watched => Error("EBADF"),
            (Some(&"EPOLL_CTL_ADD"), None) => {
                list.push(interest);
                Value(0)
            }
            (Some(&"EPOLL_CTL_ADD"), Some(_)) => Error("EEXIST"),
            (Some(&"EPOLL_CTL_MOD"), Some(at)) => {
                list[at] = interest;
                Value(0)
            }
            (Some(&"EPOLL_CTL_DEL"), Some(at)) => {
                list.remove(at);
                Value(0)
            }
            _ => Error("ENOENT"),
        })
    }

    fn epoll_wait(&mut self, call: &Call) -> Step<Answer> {
        let Some(epoll) = call.integer(0) else {
            return self.unknown("epoll_wait without a number");
        };
        let Some(Other::Epoll(mut list)) = self.others.get(&epoll).cloned() else {
            return Ok(Error("EBADF"));
        };
        let mut found = Vec::new();
        for interest in &mut list {
            let (ready, wakeups) = self.ready(interest.fd);
            let events = ready & (interest.events | ERR | HUP);
            let old = interest.edge && interest.seen == Some(wakeups);
            if events != 0 && !old && !interest.spent {
                found.push(events);
                interest.seen = Some(wakeups);
                interest.spent = interest.once;
            }
        }
        self.others.insert(epoll, Other::Epoll(list));
        if found.is_empty() && call.integer(3) != Some(0) {
            return Ok(Waits);
        }
        if let Some(events) = found.first() {
            let wanted = call
                .arguments
                .get(1)
                .and_then(|event| event.field("events"));
            let wanted = wanted.map_or(Vec::new(), Expr::words);
            if mask(&wanted) != *events && call.result != Expr::Integer(0) {
                return self.events_differ(&wanted, *events);
            }
        }
        Ok(Value(found.len() as i64))
    }

    fn events_differ(&self, wanted: &[&str], got: u32) -> Step<Answer> {
        let (wanted, got) = (wanted.join("|"), names(got));
        Stop::fail(self.line, format!("expected events {wanted}; got {got}"))
    }

    /// `poll([{fd=4, events=POLLIN, revents=0}], 1, 0)`
    fn poll(&mut self, call: &Call) -> Step<Answer> {
        let Some(Expr::List(list)) = call.arguments.first() else {
            return self.unknown("poll without a list");
        };
        let mut count = 0;
        for entry in list {
            let Some(Expr::Integer(fd)) = entry.field("fd") else {
                return self.unknown("poll without numbers");
            };
            let words = |name| entry.field(name).map_or(Vec::new(), Expr::words);
            let events = self.ready(*fd).0 & (mask(&words("events")) | ERR | HUP);
            count += i64::from(events != 0);
            let wanted = words("revents");
            let done = events != 0 || call.integer(2) == Some(0);
            if done && mask(&wanted) != events {
                return self.events_differ(&wanted, events);
            }
        }
        Ok(match (count, call.integer(2)) {
            (0, Some(0)) => Value(0),
            (0, _) => Waits,
            (count, _) => Value(count),
        })
    }
}

/// Names of events, `EPOLLIN` or `POLLIN`, without those that say how they are watched.
fn mask(words: &[&str]) -> u32 {
    let event = |word: &&str| match word.trim_start_matches('E') {
        "POLLIN" => IN,
        "POLLOUT" => OUT,
        "POLLERR" => ERR,
        "POLLHUP" => HUP,
        "POLLRDHUP" => RDHUP,
        _ => 0,
    };
    words.iter().map(event).fold(0, |mask, event| mask | event)
}

/// Events in words.
pub fn names(events: u32) -> String {
    let all = [
        ("IN", IN),
        ("OUT", OUT),
        ("ERR", ERR),
        ("HUP", HUP),
        ("RDHUP", RDHUP),
    ];
    let present = all.iter().filter(|(_, bit)| events & bit != 0);
    let names: Vec<_> = present.map(|(name, _)| *name).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join("|")
    }
}
