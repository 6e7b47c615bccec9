//! Tail loss probes (RFC 8985 §7).

use crate::wire::seq::Seq;

/// State of the tail loss probe.
#[derive(Debug, Default)]
pub(crate) struct TailLossProbe {
    /// SND.NXT when the probe was sent: `TLP.end_seq`. Every probe repeats a segment, as no data is
    /// ever unsent.
    end: Option<Seq>,
}

/// Result of a probe, as an ACK shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet.
    Unknown,
    /// The segment that it repeated had arrived.
    Needless,
    /// The probe repaired a loss.
    Repaired,
}

impl TailLossProbe {
    pub(crate) fn is_outstanding(&self) -> bool {
        self.end.is_some()
    }

    pub(crate) fn sent(&mut self, nxt: Seq) {
        self.end = Some(nxt);
    }

    pub(crate) fn clear(&mut self) {
        self.end = None;
    }

    /// Judges an ACK (§7.4.2). `duplicate`: it reports the probe as a duplicate. `bare`: it reports
    /// nothing new at all.
    pub(crate) fn judge(&mut self, ack: Seq, duplicate: bool, bare: bool) -> Verdict {
        let Some(end) = self.end.filter(|end| !ack.is_before(*end)) else {
            return Verdict::Unknown;
        };
        let verdict = if duplicate || ack == end && bare {
            Verdict::Needless
        } else if end.is_before(ack) {
            Verdict::Repaired
        } else {
            Verdict::Unknown
        };
        if verdict != Verdict::Unknown {
            self.end = None;
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::seq::from_raw;
    use crate::wire::seq::testing::{LARGEST, at, start};

    #[test]
    fn probe_is_judged_by_what_follows_its_acknowledgment() {
        let end = from_raw(100);
        let mut probe = TailLossProbe::default();
        assert_eq!(probe.judge(end, true, false), Verdict::Unknown);
        probe.sent(end);
        assert_eq!(probe.judge(from_raw(99), true, false), Verdict::Unknown);
        assert_eq!(probe.judge(end, false, false), Verdict::Unknown);
        assert_eq!(probe.judge(end, true, false), Verdict::Needless);
        assert!(!probe.is_outstanding());
        probe.sent(end);
        assert_eq!(probe.judge(end + 1, false, false), Verdict::Repaired);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 2048 }))]

        /// RFC 8985 §7.4.2, for a plausible ACK: at most a window away.
        #[test]
        fn probe_is_judged_as_in_a_stream_that_does_not_wrap(
            end in start(),
            from_end in prop_oneof![-2..=2_i64, -LARGEST..=LARGEST],
            duplicate: bool,
            bare: bool,
        ) {
            let mut probe = TailLossProbe::default();
            probe.sent(at(end));
            let ack = end + from_end;
            let verdict = match () {
                () if ack < end => Verdict::Unknown,
                () if duplicate || ack == end && bare => Verdict::Needless,
                () if ack > end => Verdict::Repaired,
                () => Verdict::Unknown,
            };
            prop_assert_eq!(probe.judge(at(ack), duplicate, bare), verdict);
            prop_assert_eq!(probe.is_outstanding(), verdict == Verdict::Unknown);
        }
    }
}
