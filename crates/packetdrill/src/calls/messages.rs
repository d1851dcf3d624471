//! Results of `recvmsg` beside data: the error queue, and how much is left.

use super::{Answer, Call, Error, Expr, Host, Step, Stop, Value, transfer::left_to_read};
use crate::{
    notices::{Notice, Stage},
    socket::Role,
    time::seconds,
};

impl Host {
    /// `recvmsg(MSG_ERRQUEUE)`: the next notice, which has to be the one in the script.
    pub(super) fn read_notice(&mut self, call: &Call, role: Role) -> Step<Answer> {
        let Some(connection) = self.connection_of(role) else {
            return Ok(Error("EAGAIN"));
        };
        let Some(notice) = connection.notices.take() else {
            return Ok(Error("EAGAIN"));
        };
        let Some(Expr::List(control)) = call
            .arguments
            .get(1)
            .and_then(|message| message.field("msg_control"))
        else {
            return Ok(Value(0));
        };
        let wrong = match notice {
            Notice::Copied { first, last } => copied(control, first, last),
            Notice::Stamp { stage, key, at_ns } => self.stamped(control, stage, key, at_ns),
        };
        match wrong {
            None => Ok(Value(0)),
            Some(wrong) => Stop::fail(self.line, wrong),
        }
    }

    /// The difference from a script's stamp, if there is one.
    fn stamped(&self, control: &[Expr], stage: Stage, key: u32, at_ns: u64) -> Option<String> {
        let time = data_of(control, "SCM_TIMESTAMPING");
        let field = |name| time?.field(name).and_then(integer);
        if let (Some(whole), Some(ns)) = (field("scm_sec"), field("scm_nsec")) {
            let wanted = (whole as u64).saturating_mul(1_000_000_000) + ns as u64;
            if wanted.abs_diff(at_ns) > self.tolerance_ns {
                let (wanted, got) = (seconds(wanted), seconds(at_ns));
                return Some(format!("expected a stamp at {wanted}; got {got}"));
            }
        }
        let report = report_of(control);
        let wanted = report.and_then(|report| report.field("ee_info"));
        if wanted.is_some_and(|wanted| *wanted != Expr::Word(stage.name().to_owned())) {
            return Some(format!("expected ee_info={wanted:?}; got {}", stage.name()));
        }
        differs(report, "ee_data", key.into())
    }

    /// `TCP_CM_INQ`: how much a reader has left.
    pub(super) fn check_inq(&mut self, call: &Call, role: Role) -> Step {
        let Some(Expr::List(control)) = call
            .arguments
            .get(1)
            .and_then(|message| message.field("msg_control"))
        else {
            return Ok(());
        };
        let wanted = data_of(control, "TCP_CM_INQ").and_then(integer);
        let Some(connection) = self.connection_of(role) else {
            return Ok(());
        };
        let left = left_to_read(&connection.endpoint) as i64;
        match wanted {
            Some(wanted) if wanted != left => Stop::fail(
                self.line,
                format!("expected TCP_CM_INQ {wanted}; got {left}"),
            ),
            _ => Ok(()),
        }
    }
}

/// The difference from a script's notice of buffers that are free, if there is one.
fn copied(control: &[Expr], first: u32, last: u32) -> Option<String> {
    let report = report_of(control);
    if report.is_none() {
        return Some("expected no notice; got one of free buffers".to_owned());
    }
    differs(report, "ee_info", first.into()).or_else(|| differs(report, "ee_data", last.into()))
}

/// A field that has another value than the script says.
fn differs(report: Option<&Expr>, name: &str, got: i64) -> Option<String> {
    let wanted = report?.field(name).and_then(integer)?;
    (wanted != got).then(|| format!("expected {name}={wanted}; got {got}"))
}

fn integer(value: &Expr) -> Option<i64> {
    match value {
        Expr::Integer(value) => Some(*value),
        _ => None,
    }
}

/// The extended error among the control messages, whatever it is called.
fn report_of(control: &[Expr]) -> Option<&Expr> {
    let mut data = control.iter().filter_map(|entry| entry.field("cmsg_data"));
    data.find(|data| data.field("ee_origin").is_some())
}

/// The data of the control message of this type.
fn data_of<'a>(control: &'a [Expr], kind: &str) -> Option<&'a Expr> {
    let is = |entry: &&Expr| {
        entry
            .field("cmsg_type")
            .is_some_and(|it| it.words() == [kind])
    };
    control.iter().find(is)?.field("cmsg_data")
}
