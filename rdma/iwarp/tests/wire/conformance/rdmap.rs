//! Rules of RFC 5040 §4 for fields that have no meaning in most messages, and for the codes of a
//! Terminate.

use crate::support::{A, Region, Stream, hex};
use xwarp_iwarp::{Inbound, TermCode};

/// R5040-4.1-7: a region of that name is not changed.
#[test]
fn invalidate_stag_field_is_read_in_no_message_but_the_two_that_invalidate() {
    let page = || Stream::new().region(Region::new(A, 0x1000, 0x1000));
    let header = |rest: &str| hex(&format!("41 {rest}"));
    for opcode in [0x43, 0x45] {
        let mut send = header("43 11223344 00000000 00000001 00000000");
        send[1] = opcode;
        let mut stream = page().receive(0);
        let Ok(Inbound::Send { kind, .. }) = stream.ulpdu(&send) else {
            panic!("a Send")
        };
        assert_eq!(kind.invalidate, None, "opcode {opcode:#x}");
    }
    let read = header(
        "41 11223344 00000001 00000001 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000",
    );
    assert!(matches!(page().ulpdu(&read), Ok(Inbound::ReadRequest(_))));
    let terminate = header("47 11223344 00000002 00000001 00000000 20020000");
    let Ok(Inbound::Terminate(received)) = page().ulpdu(&terminate) else {
        panic!("a Terminate")
    };
    assert_eq!((received.code, received.fault), (TermCode::mpa(2), None));
}

/// R5040-4.8-4.
#[test]
fn reserved_bits_of_a_terminate_change_nothing() {
    let receive = |control: &str| {
        let headers = "0016 41 43 00000000 00000000 00000001 00000000";
        let ulpdu = format!("41 47 00000000 00000002 00000001 00000000 {control} {headers}");
        match Stream::new().ulpdu(&hex(&ulpdu)) {
            Ok(Inbound::Terminate(received)) => received,
            other => panic!("a Terminate, not {other:?}"),
        }
    };
    let (plain, noisy) = (receive("1205c000"), receive("1205dfff"));
    assert_eq!(noisy.code, TermCode::ddp_untagged(5));
    assert_eq!(noisy.segment_len, plain.segment_len);
    assert_eq!(noisy.ddp_header, plain.ddp_header);
    assert!(noisy.ddp_header.is_some());
    assert_eq!((noisy.read_request, noisy.fault), (None, None));
}

/// [`TermCode::is_known`] is true for exactly the codes that the RFCs assign (RFC 5040 figure 9,
/// RFC 5041 §7.2, RFC 5044 §8, RFC 6581 §12). `receiver_survives_any_bytes` checks every code that
/// is sent.
#[test]
fn only_the_codes_of_the_rfcs_are_known() {
    let known = |code: fn(u8) -> TermCode| -> Vec<u8> {
        (0..=255).filter(|value| code(*value).is_known()).collect()
    };
    assert_eq!(known(TermCode::rdmap_protection), [0, 1, 2, 3, 4, 9, 0xff]);
    assert_eq!(known(TermCode::rdmap_operation), [5, 6, 7, 8, 9, 0xff]);
    assert_eq!(known(TermCode::ddp_tagged), [0, 1, 2, 3, 4]);
    assert_eq!(known(TermCode::ddp_untagged), [1, 2, 3, 4, 5, 6]);
    assert_eq!(known(TermCode::mpa), [1, 2, 3, 4, 5, 6, 7]);
    assert!(TermCode::rdmap_local().is_known() && TermCode::ddp_local().is_known());
}
