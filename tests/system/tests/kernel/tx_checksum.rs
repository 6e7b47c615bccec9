//! Checksums that the engine does not compute, proven by the kernel's TCP.

use xwarp_driver::attach::XdpMode;
use xwarp_driver::{NicConfig, TxChecksum};
use xwarp_system_tests::impair::{Bridged, Side};
use xwarp_tcp::{StackConfig, StackCounters};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::engine::Engine;
use crate::in_each_mode;
use crate::streams::{kernel_receives, send_all};

const PORT: u16 = 5001;
/// Bytes of a stream.
const BYTES: usize = 2 << 20;

/// A stream whose segments leave without a sum, which the kernel below AF_XDP computes; what became
/// of it.
fn to_the_kernel(hosts: &Bridged, mode: XdpMode, data: Vec<u8>) -> (Vec<u8>, StackCounters) {
    let receiving = kernel_receives(hosts, PORT);
    let counters = hosts.a.call(move || {
        let nic = NicConfig::default().mode(Some(mode));
        let nic = nic.tx_checksum(TxChecksum::InKernel);
        let mut engine = Engine::open_on(Side::A, &nic, &StackConfig::default());
        let conn = engine.connect(40_000, PORT);
        engine.until_connected();
        send_all(&mut engine, conn, &data);
        engine.check();
        engine.stack.counters()
    });
    (receiving.recv().expect("what came"), counters)
}

/// It reports the byte of the probe as a duplicate, as RFC 2883 says. After losses it is asked
/// anew, and after what only looks like one: a kernel that waits for a processor may get a segment
/// again.
#[test]
fn kernel_proves_the_checksums_that_it_gets() {
    needs_root!();
    in_each_mode(|hosts, mode, loss| {
        let data = Rng::new(Seed(5), 0).bytes(BYTES);
        let (received, counters) = to_the_kernel(hosts, mode, data.clone());
        assert!(received == data, "{mode:?}, {loss:?}: {counters:?}");
        let what = format!("{mode:?}, {loss:?}: {counters:?}");
        let (asked, proven) = (counters.checksum_probes_out, counters.checksums_proven);
        let doubted = counters.checksums_doubted;
        if cfg!(feature = "xsk-rs") {
            return assert_eq!((asked, proven), (0, 0), "xsk-rs has no metadata: {what}");
        }
        assert_eq!(asked, 1 + doubted, "{what}");
        assert!(doubted <= counters.retransmissions, "{what}");
        let least = u64::from(loss.is_none());
        assert!((least..=asked).contains(&proven), "{what}");
    });
}
