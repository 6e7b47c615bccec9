//! Connecting, by MPA's start-up or by streams that are handed over.

use std::time::Duration;

use xwarp::QpState;
use xwarp::attr::QpChange;
use xwarp::error::ConnectError;
use xwarp::stream::{Framing, LlpStream, StreamState};

use crate::LONGEST;
use crate::end::ModelEnd;
use crate::program::Program;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long is waited for what a stream brings.
const WAIT: Duration = Duration::from_millis(1);
const WAITS: usize = 5000;

impl Program {
    /// Lets the second host answer.
    pub(crate) fn accept(&mut self) {
        for n in 0..crate::program::PAIRS {
            while let Some(request) = self.listeners[n].try_accept().unwrap() {
                let end = &mut self.pairs[n].ends[1];
                if end.shown_state() == QpState::Idle && end.live {
                    // One that was given up meanwhile is refused.
                    let _ = request.accept(end.qp(), b"");
                } else {
                    request.reject(b"").unwrap_or(());
                }
            }
            if let Some(connecting) = &mut self.connecting[n]
                && let Some(result) = connecting.try_finish()
            {
                let pair = &mut self.pairs[n];
                // Time may have run out before the request was looked at.
                let late = matches!(result, Err(ConnectError::TimedOut { .. }));
                let may_fail = late || pair.excused || self.loss > 0.0;
                assert!(result.is_ok() || may_fail, "{result:?}");
                pair.excused |= result.is_err();
                self.connecting[n] = None;
            }
        }
    }

    /// Connects the first end to the second, if both are Idle.
    pub(crate) fn connect(&mut self, n: usize) {
        if self.rng.chance(0.7) {
            self.recover(n);
        }
        self.observe(n);
        let idle = |end: &ModelEnd| end.state == QpState::Idle;
        if !self.pairs[n].ends.iter().all(idle) || self.connecting[n].is_some() {
            return;
        }
        if !self.cut && self.rng.chance(0.3) {
            self.connect_by_streams(n);
            return;
        }
        self.pairs[n].settle_depths();
        self.begin(n);
        let at = self.listeners[n].addresses()[0];
        let connecting = self.pairs[n].ends[0]
            .qp()
            .begin_connect(at, b"", CONNECT_TIMEOUT);
        self.connecting[n] = Some(connecting.unwrap());
        self.excuse_where_buffers_lack();
        if self.rng.chance(0.9) {
            for _ in 0..20 {
                self.sim.run_for(Duration::from_millis(1));
                self.accept();
            }
        }
    }

    /// A connection begins: what was posted before is done on it.
    fn begin(&mut self, n: usize) {
        let pair = &mut self.pairs[n];
        for who in [0, 1] {
            pair.drain(who, &mut self.buffers[who], &mut self.shared);
            let end = &mut pair.ends[who];
            let posted = end.sends.posted.iter();
            end.messages = posted.filter_map(|work| work.message.clone()).collect();
            end.live = true;
        }
        let fine = |end: &ModelEnd| end.sends.is_fine();
        let certain = |end: &ModelEnd| end.window_is.is_certain() && end.fast_is.is_certain();
        let changes = pair.uses_stags && !pair.ends.iter().all(certain);
        pair.excused = self.cut || changes || !pair.ends.iter().all(fine);
        pair.spoken = false;
        pair.post_first_word(0);
    }

    /// By TCP connections that carry raw bytes first (verbs.md §5): the first end says hello. The
    /// second one's answer is the last streaming message, and the first end speaks again.
    fn connect_by_streams(&mut self, n: usize) {
        let Some((mut near, far)) = self.streams(n) else {
            return;
        };
        let (framing, other) = self.framings();
        // The depths are the applications' affair.
        let ords = self.pairs[n].agree_on_depths();
        let last = self.words();
        self.begin(n);
        let change = QpChange::start_with(&far, other, &last).ord(ords[1]);
        self.hand_over(n, 1, change, other);
        self.excuse_where_buffers_lack();
        let heard = self.hear(&mut near, &last);
        // The other end waits for the first FPDU of this one.
        self.sim.run_for(WAIT);
        assert!(!heard || near.read(&mut [0]) != Ok(1), "an early FPDU");
        self.observe(n);
        if heard && near.state() == Ok(StreamState::Established) {
            let change = QpChange::start(&near, framing).ord(ords[0]);
            self.hand_over(n, 0, change, framing);
            self.observe(n);
            return;
        }
        // The other end has failed meanwhile, or much was lost.
        let pair = &mut self.pairs[n];
        assert!(pair.excused || !heard, "a stream has ended");
        (pair.excused, pair.ends[0].live) = (true, false);
    }

    /// Two ends of a TCP connection on which something was said.
    fn streams(&mut self, n: usize) -> Option<(LlpStream, LlpStream)> {
        let at = self.stream_listeners[n].addresses()[0];
        let host = self.sim.a();
        let mut near = host.rnic().connect_stream(at, CONNECT_TIMEOUT).unwrap();
        let mut far = self.wait(|it| it.stream_listeners[n].try_accept().unwrap())?;
        self.wait(|_| (near.state() == Ok(StreamState::Established)).then_some(()))?;
        let hello = self.words();
        let said = self.say(&mut near, &hello) && self.hear(&mut far, &hello);
        said.then_some((near, far))
    }

    /// The same of both ends, as they see it.
    fn framings(&mut self) -> (Framing, Framing) {
        let [crc, send_markers, receive_markers] = [0; 3].map(|_| self.rng.chance(0.5));
        let framing = Framing {
            crc,
            send_markers,
            receive_markers,
        };
        let other = Framing {
            crc,
            send_markers: receive_markers,
            receive_markers: send_markers,
        };
        (framing, other)
    }

    fn hand_over(&mut self, n: usize, who: usize, change: QpChange, framing: Framing) {
        let end = &mut self.pairs[n].ends[who];
        end.qp().modify(change).unwrap();
        assert_eq!(end.shown_state(), QpState::Rts);
        end.wished[0] = end.depths[0];
        let info = end.qp().connection().unwrap();
        let framed = Framing {
            crc: info.crc,
            send_markers: info.send_markers,
            receive_markers: info.receive_markers,
        };
        assert_eq!(framed, framing);
    }

    /// Up to two segments of raw bytes.
    fn words(&mut self) -> Vec<u8> {
        let len = 1 + self.rng.index(2 * LONGEST);
        self.rng.bytes(len)
    }

    fn say(&mut self, stream: &mut LlpStream, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        let said = self.wait(|_| {
            rest = &rest[stream.write(rest).unwrap_or(0)..];
            rest.is_empty().then_some(())
        });
        said.is_some()
    }

    fn hear(&mut self, stream: &mut LlpStream, bytes: &[u8]) -> bool {
        let (mut heard, mut filled) = (vec![0; bytes.len()], 0);
        let all = self.wait(|_| {
            filled += stream.read(&mut heard[filled..]).unwrap_or(0);
            (filled == bytes.len()).then_some(())
        });
        assert!(heard[..filled] == bytes[..filled], "streaming mode");
        all.is_some()
    }

    /// Some seconds, which are enough unless much is lost.
    fn wait<T>(&mut self, mut condition: impl FnMut(&mut Self) -> Option<T>) -> Option<T> {
        for _ in 0..WAITS {
            if let Some(value) = condition(self) {
                return Some(value);
            }
            self.sim.run_for(WAIT);
            self.accept();
        }
        None
    }
}
