//! Changes of the interface in words: one sentence for each that somebody may wonder about later.

use xwarp_driver::net::{Channels, DriverRings, InterfaceState};

/// What has become of interface `name` between two states.
pub(in crate::engine) fn changes(
    name: &str,
    was: &InterfaceState,
    is: &InterfaceState,
) -> Vec<String> {
    let link = match (was.up, is.up) {
        (true, false) => Some(format!(
            "{name} is down: nothing is sent or received, and connections wait until it is up again, or their user timeout"
        )),
        (false, true) => Some(format!("{name} is up again")),
        (true, true) | (false, false) => None,
    };
    let mtu = (was.mtu != is.mtu).then(|| {
        format!(
            "{name} has an MTU of {} now, no more of {}",
            is.mtu, was.mtu
        )
    });
    let mac =
        (was.mac != is.mac).then(|| format!("{name} has the Ethernet address {} now", is.mac));
    let queues = Option::zip(was.channels, is.channels);
    let rings = Option::zip(was.rings, is.rings);
    let all = [
        link,
        mtu,
        mac,
        queues.and_then(|(was, is)| queues_changed(name, &was, &is)),
        rings.and_then(|(was, is)| rings_changed(name, &was, &is)),
    ];
    all.into_iter().flatten().collect()
}

/// An RNIC keeps the queues that it was opened with. The kernel refuses to take away those that it is bound to.
fn queues_changed(name: &str, was: &Channels, is: &Channels) -> Option<String> {
    let (before, now) = (was.receiving(), is.receiving());
    if now == before {
        return None;
    }
    let plural = if now == 1 { "" } else { "s" };
    let begin = format!("{name} has {now} receive queue{plural} now, no more of {before}");
    if now < before {
        return Some(format!("{begin}: what came to the others comes to these"));
    }
    let kind = if is.combined.now > was.combined.now {
        "combined"
    } else {
        "rx"
    };
    let old = if kind == "rx" { was.rx } else { was.combined };
    Some(format!(
        "{begin}: an RNIC that was opened before does not serve the new ones, and what comes to them does not reach it; open it anew, or set `ethtool -L {name} {kind} {}`",
        old.now
    ))
}

fn rings_changed(name: &str, was: &DriverRings, is: &DriverRings) -> Option<String> {
    let (before, now) = (was.rx.now, is.rx.now);
    (now != before).then(|| {
        format!(
            "{name} has receive rings of {now} descriptors now, no more of {before}: an RNIC that was opened before keeps the frames that it has; open it anew to have as many as the rings"
        )
    })
}

#[cfg(test)]
mod tests {
    use xwarp_driver::net::{MacAddr, Setting};

    use super::*;

    fn state() -> InterfaceState {
        let setting = |now| Setting { now, max: 8 };
        InterfaceState {
            up: true,
            mac: MacAddr::default(),
            mtu: 1500,
            networks: Vec::new(),
            channels: Some(Channels {
                rx: setting(0),
                tx: setting(0),
                combined: setting(2),
            }),
            rings: Some(DriverRings {
                rx: setting(256),
                tx: setting(256),
            }),
            paths: 0,
        }
    }

    fn changed(change: impl FnOnce(&mut InterfaceState)) -> Vec<String> {
        let mut is = state();
        change(&mut is);
        changes("eth1", &state(), &is)
    }

    #[test]
    fn each_change_has_its_sentence() {
        assert!(changed(|_| ()).is_empty());
        let all = changed(|is| {
            is.up = false;
            is.mtu = 1400;
            is.mac = MacAddr([2, 0, 0, 0, 0, 7]);
            is.channels.as_mut().unwrap().combined.now = 4;
            is.rings.as_mut().unwrap().rx.now = 512;
        });
        assert_eq!(all.len(), 5, "{all:?}");
    }

    #[test]
    fn queues_that_nobody_serves_are_named_with_what_to_do() {
        let more = changed(|is| is.channels.as_mut().unwrap().combined.now = 4);
        let [text] = &more[..] else {
            panic!("{more:?}")
        };
        assert!(text.starts_with("eth1 has 4 receive queues now, no more of 2: "));
        assert!(text.ends_with("set `ethtool -L eth1 combined 2`"), "{text}");
        let mut before = state();
        before.channels.as_mut().unwrap().combined.now = 0;
        before.channels.as_mut().unwrap().rx.now = 1;
        let mut after = before.clone();
        after.channels.as_mut().unwrap().rx.now = 3;
        let text = changes("eth1", &before, &after).concat();
        assert!(text.ends_with("set `ethtool -L eth1 rx 1`"), "{text}");
        let fewer = changed(|is| is.channels.as_mut().unwrap().combined.now = 1).concat();
        assert!(fewer.ends_with("comes to these"), "{fewer}");
    }

    #[test]
    fn driver_that_tells_nothing_is_not_spoken_of() {
        assert!(changed(|is| (is.channels, is.rings) = (None, None)).is_empty());
        let sending = changed(|is| is.channels.as_mut().unwrap().tx.now = 1);
        assert!(sending.is_empty(), "{sending:?}");
    }
}
