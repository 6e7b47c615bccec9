//! A link between xwarp and siw that loses, repeats and reorders segments.

use std::time::Duration;

use ::xwarp::{Opcode, QpConfig, SendRequest, Stag, WrId};
use xwarp_system_tests::impair::Rule;
use xwarp_test_kit::netsim::Seed;

use crate::xwarp::Setup;
use crate::{Pair, Role, with_guest};

const PIECE: u32 = 16 << 10;
const PIECES: u64 = 8;

/// Writes, Reads and Sends both ways, all verified, over a link like this.
fn survives(rule: &Rule) {
    with_guest(|lab, guest| {
        let setup = Setup {
            bytes: 1 << 20,
            qp: QpConfig::default().ord(16).ird(16),
            ..Setup::default()
        };
        for role in Role::BOTH {
            let mut pair = Pair::connect(lab, guest, role, &setup);
            pair.exchange(role, 1000);
            let impaired = lab.impair(rule);
            move_both_ways(&mut pair);
            let fates = impaired.fates();
            assert!(
                fates.iter().any(|fates| fates.lost + fates.diverted > 0),
                "nothing was impaired: {fates:?}"
            );
        }
    });
}

fn move_both_ways(pair: &mut Pair<'_>) {
    let whole = PIECES * u64::from(PIECE);
    let remote = pair.remote;
    let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
    let Stag(source) = xwarp.end.source.stag();
    let Stag(sink) = xwarp.end.sink.stag();
    siw.ask(&format!(
        "fill region=r offset=524288 length={whole} seed=5"
    ));
    siw.begin(&format!(
        "write name=s id=0 region=r offset=524288 length={PIECE} stag={sink} to=0 times={PIECES}"
    ));
    for id in 0..PIECES {
        let at = id * u64::from(PIECE);
        let to = ::xwarp::RemoteAddress {
            to: remote.to + at,
            ..remote
        };
        xwarp.end.post(SendRequest::write(
            WrId(id),
            xwarp.end.source.local(at, PIECE),
            to,
        ));
    }
    siw.answer().expect("posted");
    siw.ask(&format!(
        "read name=s id=100 region=r offset=262144 length={PIECE} stag={source} to=0 times={PIECES}"
    ));
    let done = siw.poll("s", 2 * usize::try_from(PIECES).expect("a few"));
    assert!(done.iter().all(|done| done.status == "success"), "{done:?}");
    for id in 0..PIECES {
        xwarp.done(id, Opcode::Write);
    }
    // A Read comes after the Writes of its side, and its response after siw's.
    let into = xwarp.end.sink.local(whole, 8);
    xwarp
        .end
        .post(SendRequest::read(WrId(PIECES), into, remote));
    xwarp.done(PIECES, Opcode::Read);
    siw.ask(&format!("check region=r offset=0 length={whole} seed=1"));
    siw.ask(&format!(
        "check region=r offset=262144 length={whole} seed=1"
    ));
    xwarp.assert_received(usize::try_from(whole).expect("small"), 5);
}

#[test]
fn lost_segments_are_made_good() {
    survives(&Rule {
        loss: 0.02,
        ..Rule::new(Seed(11))
    });
}

#[test]
fn repeated_and_late_segments_are_put_in_order() {
    survives(&Rule {
        duplicate: 0.05,
        reorder: 0.05,
        delay: Duration::from_millis(2),
        ..Rule::new(Seed(12))
    });
}

#[test]
#[ignore = "only in the set of all"]
fn all_of_it_together_is_survived_for_many_seeds() {
    for seed in 0..10 {
        survives(&Rule {
            loss: 0.01,
            duplicate: 0.02,
            reorder: 0.02,
            delay: Duration::from_millis(2),
            ..Rule::new(Seed(seed))
        });
    }
}
