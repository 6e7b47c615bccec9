//! Changes of an open interface as text: one sentence for each change that matters to an operator.

use super::{Channels, DriverRings, InterfaceState};

impl InterfaceState {
    /// Sentences for the log, one for each change of interface `name` since the state `was`. Where a
    /// command helps, the sentence names it.
    pub fn changes_since(&self, was: &Self, name: &str) -> Vec<String> {
        let link = match (was.up, self.up) {
            (true, false) => Some(format!(
                "{name} is down: nothing is sent or received, and connections wait until it is up again, or their user timeout"
            )),
            (false, true) => Some(format!("{name} is up again")),
            (true, true) | (false, false) => None,
        };
        let mtu = (was.mtu != self.mtu).then(|| {
            format!(
                "{name} now has an MTU of {} instead of {}",
                self.mtu, was.mtu
            )
        });
        let mac = (was.mac != self.mac)
            .then(|| format!("{name} now has the Ethernet address {}", self.mac));
        let queues = Option::zip(was.channels, self.channels);
        let rings = Option::zip(was.rings, self.rings);
        let all = [
            link,
            mtu,
            mac,
            queues.and_then(|(was, is)| queues_changed(name, &was, &is)),
            rings.and_then(|(was, is)| rings_changed(name, &was, &is)),
        ];
        all.into_iter().flatten().collect()
    }
}

/// An RNIC keeps the queues that it was opened with. The kernel refuses to remove a queue that a
/// socket is bound to.
fn queues_changed(name: &str, was: &Channels, is: &Channels) -> Option<String> {
    let (before, now) = (was.receiving(), is.receiving());
    if now == before {
        return None;
    }
    let plural = if now == 1 { "" } else { "s" };
    let change = format!("{name} now has {now} receive queue{plural} instead of {before}");
    if now < before {
        return Some(format!(
            "{change}: frames of the removed queues go to the remaining ones"
        ));
    }
    let kind = if is.combined.now > was.combined.now {
        "combined"
    } else {
        "rx"
    };
    let old = if kind == "rx" { was.rx } else { was.combined };
    Some(format!(
        "{change}: an RNIC that was opened before does not serve the new ones, and loses the frames that arrive there; reopen it, or run `ethtool -L {name} {kind} {}`",
        old.now
    ))
}

fn rings_changed(name: &str, was: &DriverRings, is: &DriverRings) -> Option<String> {
    let (before, now) = (was.rx.now, is.rx.now);
    (now != before).then(|| {
        format!(
            "{name} now has receive rings of {now} descriptors instead of {before}: an RNIC that was opened before keeps its number of frames; reopen it to match the rings"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{MacAddr, Setting};

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
        is.changes_since(&state(), "eth1")
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
    fn queues_without_an_engine_are_named_with_the_command_that_removes_them() {
        let more = changed(|is| is.channels.as_mut().unwrap().combined.now = 4);
        let [text] = &more[..] else {
            panic!("{more:?}")
        };
        assert!(text.starts_with("eth1 now has 4 receive queues instead of 2: "));
        assert!(text.ends_with("run `ethtool -L eth1 combined 2`"), "{text}");
        let mut before = state();
        before.channels.as_mut().unwrap().combined.now = 0;
        before.channels.as_mut().unwrap().rx.now = 1;
        let mut after = before.clone();
        after.channels.as_mut().unwrap().rx.now = 3;
        let text = after.changes_since(&before, "eth1").concat();
        assert!(text.ends_with("run `ethtool -L eth1 rx 1`"), "{text}");
        let fewer = changed(|is| is.channels.as_mut().unwrap().combined.now = 1).concat();
        assert!(fewer.ends_with("go to the remaining ones"), "{fewer}");
    }

    #[test]
    fn driver_that_reports_no_queues_and_rings_is_not_mentioned() {
        assert!(changed(|is| (is.channels, is.rings) = (None, None)).is_empty());
        let sending = changed(|is| is.channels.as_mut().unwrap().tx.now = 1);
        assert!(sending.is_empty(), "{sending:?}");
    }
}
