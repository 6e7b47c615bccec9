//! Error codes and opcodes are those of the registries (RFC 6580 §3, RFC 7306 §10).

use crate::support::{Stream, hex};
use xwarp_iwarp::{Inbound, Opcode, TermCode};

/// The codes of a layer and type that have a meaning.
fn known(code: fn(u8) -> TermCode) -> Vec<u8> {
    (0..=u8::MAX).filter(|n| code(*n).is_known()).collect()
}

/// The code of a received Terminate.
fn received(control: [u8; 2]) -> TermCode {
    let mut ulpdu = hex("41 47 00000000 00000002 00000001 00000000 00000000");
    ulpdu[18..20].copy_from_slice(&control);
    match Stream::new().ulpdu(&ulpdu) {
        Ok(Inbound::Terminate(terminate)) => terminate.code,
        other => panic!("a Terminate, not {other:?}"),
    }
}

/// R6580-3.1-1
#[test]
fn codes_of_rdmap_are_those_of_its_registry() {
    assert_eq!(known(TermCode::rdmap_protection), [0, 1, 2, 3, 4, 9, 0xff]);
    assert_eq!(known(TermCode::rdmap_operation), [5, 6, 7, 8, 9, 0xff]);
    for code in 0..=u8::MAX {
        assert!(received([0x00, code]).is_known(), "0/0 has any code");
    }
}

/// R6580-3.2-1: type 3 belongs to the layer below, and this one does not use it.
#[test]
fn codes_of_ddp_are_those_of_its_registry() {
    assert_eq!(known(TermCode::ddp_tagged), [0, 1, 2, 3, 4]);
    assert_eq!(known(TermCode::ddp_untagged), [1, 2, 3, 4, 5, 6]);
    for code in 0..=u8::MAX {
        // Other codes of 1/0 may be read as 0/1: siw's order of the two halves.
        let local = received([0x10, code]);
        assert_eq!(local.layer() == 1 && local.is_known(), code == 0);
        let lower = received([0x13, code]);
        assert!(!lower.is_known());
        assert_eq!((lower.layer(), lower.etype(), lower.code()), (1, 3, code));
    }
}

/// R6580-3.3-1
#[test]
fn codes_of_mpa_are_those_of_its_registry() {
    assert_eq!(known(TermCode::mpa), [1, 2, 3, 4, 5, 6, 7]);
}

/// R7306-10-1, R6580-3.4-1, -2: with 0xF for experiments. Two of those that no RFC assigns are
/// known, and refused unless both ends know them.
#[test]
fn opcodes_are_those_of_the_registry() {
    for control in 0..=u8::MAX {
        let opcode = control & 0x0f;
        match Opcode::from_control(control) {
            Ok(known) => {
                assert_eq!((known as u8, opcode < 0xe), (opcode, true));
                assert_eq!(known.is_extension(), (8..0xc).contains(&opcode));
                assert_eq!(known.is_unassigned(), opcode >= 0xc);
            }
            Err(unassigned) => assert_eq!((unassigned, opcode >= 0xe), (opcode, true)),
        }
    }
    let queue = |control| {
        let queue = Opcode::from_control(control).expect("assigned").queue();
        queue.map(|queue: xwarp_iwarp::ddp::Queue| queue.qn())
    };
    let queues: Vec<_> = (0..0xc).map(queue).collect();
    let [send, request, terminate, response] = [Some(0), Some(1), Some(2), Some(3)];
    assert_eq!(queues[..4], [None, request, None, send]);
    assert_eq!(queues[4..8], [send, send, send, terminate]);
    assert_eq!(queues[8..], [send, send, request, response]);
}
