//! The verbs one by one: what each accepts, what each returns, and what a refused one leaves (verbs
//! draft §9.2, §9.3).

mod errors;
mod objects;
mod operations;
mod refusals;

use std::time::Duration;

use xwarp::work::Operation;
use xwarp::{Opcode, QpConfig, Sge, Stag, WorkCompletion};
use xwarp_sim_tests::{Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(91)).one_way_delay(Duration::from_micros(50))
}

fn privileged() -> QpConfig {
    QpConfig::default().privileged(true)
}

fn completions(end: &mut SimEnd) -> Vec<WorkCompletion> {
    std::iter::from_fn(|| end.send_cq().poll().unwrap()).collect()
}

fn received(end: &mut SimEnd) -> Vec<WorkCompletion> {
    std::iter::from_fn(|| end.recv_cq().poll().unwrap()).collect()
}

/// By which name a Send or Write completes.
fn opcode_of(operation: &Operation) -> Opcode {
    let Operation::Send {
        solicited,
        invalidate,
        ..
    } = operation
    else {
        return Opcode::Write;
    };
    let opcode = match (solicited, invalidate.is_some()) {
        (false, false) => Opcode::Send,
        (true, false) => Opcode::SendSolicited,
        (false, true) => Opcode::SendInvalidate,
        (true, true) => Opcode::SendSolicitedInvalidate,
    };
    assert!(opcode.is_send());
    opcode
}

fn send_of(source: Sge, solicited: bool, invalidate: Option<Stag>) -> Operation {
    Operation::Send {
        payload: source.into(),
        solicited,
        invalidate,
    }
}
