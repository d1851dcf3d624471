//! The roles as state machines.

mod blast;
mod bulk;
mod incast;
mod messages;
mod ping;
mod probe;

use super::{engine::Actor, plan::Role};

/// Builds the machine of a role.
pub fn build(role: &Role) -> Box<dyn Actor> {
    match role.clone() {
        Role::Source {
            flow,
            peer,
            rate_bps,
            span,
        } => Box::new(bulk::Source::new(flow, peer, rate_bps, span)),
        Role::Blaster {
            flow,
            peer,
            rate_bps,
            span_bytes,
            span,
        } => Box::new(blast::Blaster::new(flow, peer, rate_bps, span_bytes, span)),
        Role::PhasedSource { .. }
        | Role::DatagramSource { .. }
        | Role::DatagramSink { .. }
        | Role::Aggregator { .. }
        | Role::QueryServer { .. } => {
            unreachable!("`limits` refuses it")
        }
        Role::Sink { flow, port } => Box::new(bulk::Sink::new(flow, port)),
        Role::PingClient {
            flow,
            peer,
            bytes,
            interval_ns,
            span,
        } => Box::new(ping::Client::new(flow, peer, bytes, interval_ns, span)),
        Role::Echo { port, bytes, .. } => Box::new(ping::Echo::new(port, bytes)),
        Role::IncastRequester {
            responders,
            bytes,
            interval_ns,
            span,
        } => Box::new(incast::Requester::new(responders, bytes, interval_ns, span)),
        Role::IncastResponder { flow, peer, span } => {
            Box::new(incast::Responder::new(flow, peer, span))
        }
        Role::MessageSource {
            peers,
            schedule,
            connections,
            classes,
            span,
        } => Box::new(messages::Source::new(
            peers,
            schedule,
            connections,
            classes,
            span,
        )),
        Role::MessageSink {
            flow,
            port,
            classes,
        } => Box::new(messages::Sink::new(flow, port, classes)),
    }
}
