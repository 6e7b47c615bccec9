//! Completions of failed requests: their status, and the peer's error.

use super::testbed::{Bed, request};
use crate::abi::numbers::{
    IBV_WC_LOC_PROT_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_SEND_WITH_INV,
};
use crate::abi::verbs::{Rdma, Target, ibv_sge};

/// A Read of 8 bytes from the second host, which fails: status and the vendor's error.
fn read(bed: &Bed, here: ibv_sge, there: Target) -> (u32, u32) {
    let mut piece = [here];
    let mut wr = request(5, IBV_WR_RDMA_READ, &mut piece);
    wr.wr = there;
    assert_eq!(bed.a.post_send(&mut wr), 0);
    let failed = bed.a.completion();
    assert_eq!(failed.wr_id, 5);
    (failed.status, failed.vendor_err)
}

#[test]
fn memory_that_the_key_does_not_cover_is_an_error_of_local_protection() {
    for (offset, flip) in [(0, 1 << 12), (super::testbed::LEN - 4, 0)] {
        let bed = Bed::new();
        let mut piece = [bed.a.sge(offset, 8)];
        piece[0].lkey ^= flip;
        assert_eq!(bed.a.post_send(&mut request(5, IBV_WR_SEND, &mut piece)), 0);
        let failed = bed.a.completion();
        assert_eq!((failed.wr_id, failed.status), (5, IBV_WC_LOC_PROT_ERR));
        assert_eq!(failed.vendor_err, 0);
        bed.end();
    }
}

/// Layer, type and code of the Terminate are those of a Remote Protection Error (RFC 5040 §4.8): an
/// invalid `STag`, or bounds.
#[test]
fn what_the_peer_refuses_is_told_with_the_code_of_its_terminate() {
    for (offset, flip, code) in [(0, 1 << 12, 0x00_0100), (super::testbed::LEN, 0, 0x00_0101)] {
        let bed = Bed::new();
        let rdma = Rdma {
            remote_addr: bed.b.sge(offset, 0).addr,
            rkey: bed.b.key() ^ flip,
        };
        let told = read(&bed, bed.a.sge(0, 8), Target { rdma });
        assert_eq!(told, (IBV_WC_REM_ACCESS_ERR, code));
        bed.end();
    }
}

#[test]
fn receive_fails_whose_message_invalidates_a_key_that_nobody_has() {
    let bed = Bed::new();
    bed.b.post_recv(7, bed.b.sge(0, 100));
    let mut piece = [bed.a.sge(0, 4)];
    let mut wr = request(1, IBV_WR_SEND_WITH_INV, &mut piece);
    wr.imm_data = bed.b.key() ^ 1 << 12;
    assert_eq!(bed.a.post_send(&mut wr), 0);
    let failed = bed.b.completion();
    assert_eq!((failed.wr_id, failed.status), (7, IBV_WC_LOC_PROT_ERR));
    bed.end();
}
