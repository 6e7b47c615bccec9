//! Peer of the same trust domain: the rings between two clients carry descriptors of frames, which
//! stay where their sender wrote them. No process and no copy is in between.
//!
//! Each maps the other's file `up`, and reads frames there. A peer could change a frame while it is
//! read, so the two trust each other as processes do that may trace each other (ptrace(2)). The
//! switch introduces only such processes to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use xwarp_switchd::MacAddress;

use super::file::{MappedWord, Mapping};
use super::layout::{ENTRIES, Entry, FRAMES, flags, frames, pair};
use super::mailbox::NewPeer;
use super::processor::Processor;
use super::ring::{Broken, Cells, Consumer, Producer};
use crate::memory::Arena;
use crate::packet_io::{BURST, Frame, IoCounters, Parking, RxFrame};
use crate::wake::RemoteDoorbell;

/// A ring of a pair's file.
struct PairRing {
    pair: Mapping,
    at: usize,
}

impl Cells for PairRing {
    const ENTRIES: u32 = ENTRIES;

    #[inline]
    fn produced(&self) -> &AtomicU32 {
        self.pair.word(self.at + pair::PRODUCED)
    }

    #[inline]
    fn consumed(&self) -> &AtomicU32 {
        self.pair.word(self.at + pair::CONSUMED)
    }

    #[inline]
    fn entry(&self, number: u32) -> &AtomicU64 {
        let place = (number % ENTRIES) as usize;
        self.pair.number(self.at + pair::RING_ENTRIES + 8 * place)
    }
}

/// The way to a peer.
pub(super) struct Peer {
    mac: MacAddress,
    /// The peer's frames.
    arena: Arc<Arena>,
    /// Those of them that are the peer's at the moment.
    parked: Parking,
    sent: Producer<PairRing>,
    /// Frames of this process that the peer has returned.
    returned: Consumer<PairRing>,
    received: Consumer<PairRing>,
    /// Frames of the peer that this process returns.
    returns: Producer<PairRing>,
    /// Lengths of the frames of this process that the peer has, by their places.
    has: Vec<Option<usize>>,
    has_count: usize,
    bell: RemoteDoorbell,
    processor: Processor,
    is_broken: bool,
}

impl Peer {
    pub(super) fn new(new: NewPeer) -> Self {
        let (arena, frames) = new.up.received().into_frames(&[frames()], 0);
        let mut parked = Parking::new(Arc::clone(&arena));
        for frame in frames {
            let lent = parked.park(frame, false);
            debug_assert!(lent.is_ok(), "a frame of this arena");
        }
        let ring = |at| PairRing {
            pair: new.pair.clone(),
            at,
        };
        let [sent, its_returns, received, returned] = if new.is_first {
            pair::RINGS
        } else {
            let [a, b, c, d] = pair::RINGS;
            [c, d, a, b]
        };
        Self {
            mac: new.mac,
            arena,
            parked,
            sent: Producer::new(ring(sent)),
            returned: Consumer::new(ring(returned)),
            received: Consumer::new(ring(received)),
            returns: Producer::new(ring(its_returns)),
            has: vec![None; FRAMES],
            has_count: 0,
            bell: RemoteDoorbell::new(MappedWord::new(&new.flags, flags::CLIENT_ASLEEP), new.bell),
            processor: Processor::new(MappedWord::new(&new.flags, flags::PROCESSOR)),
            is_broken: false,
        }
    }

    /// Whether it has run on this processor.
    pub(super) fn is_on(&self, processor: u32) -> bool {
        self.processor.is(processor)
    }

    #[inline]
    pub(super) fn mac(&self) -> MacAddress {
        self.mac
    }

    /// The peer's frames.
    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// True for a frame of the peer's.
    #[inline]
    pub(super) fn owns(&self, frame: &Frame) -> bool {
        frame.is_of(&self.arena)
    }

    /// Whether it has frames of this process.
    pub(super) fn has_frames(&self) -> bool {
        self.has_count > 0
    }

    #[inline]
    pub(super) fn has_any(&self) -> bool {
        !self.is_broken && self.received.has_any()
    }

    /// Gives the peer a frame of this process, by its place. False if the peer has as many as it
    /// may have, or has broken the rules: then the frame is lost, as on a wire.
    pub(super) fn send(&mut self, place: usize, len: usize) -> bool {
        if self.is_broken || self.has_count >= BURST {
            return false;
        }
        let (Ok(place16), Ok(len32)) = (u16::try_from(place), u32::try_from(len)) else {
            return false;
        };
        let entry = Entry {
            place: place16,
            len: len32,
            epoch: 0,
        };
        let pushed = self.sent.push(entry.encode());
        if self.judged(pushed) != Some(true) {
            return false;
        }
        if let Some(has) = self.has.get_mut(place) {
            *has = Some(len);
            self.has_count += 1;
        }
        true
    }

    /// Takes frames that the peer has sent.
    pub(super) fn receive(
        &mut self,
        budget: usize,
        counters: &mut IoCounters,
        out: &mut Vec<RxFrame>,
    ) {
        if self.is_broken {
            return;
        }
        let before = out.len();
        while out.len() - before < budget {
            let popped = self.received.pop();
            let Some(Some(entry)) = self.judged(popped) else {
                break;
            };
            let frame = self.taken(entry);
            let Some(frame) = self.judged(frame) else {
                break;
            };
            counters.rx_frames += 1;
            counters.rx_bytes += frame.len() as u64;
            out.push(frame);
        }
        if out.len() > before {
            self.received.release();
        }
    }

    fn taken(&mut self, entry: u64) -> Result<RxFrame, Broken> {
        let entry = Entry::decode(entry).ok_or(Broken)?;
        let frame = self.parked.returned(entry.place.into());
        match frame {
            Ok(Some(frame)) => Ok(RxFrame::new(frame, entry.len as usize)),
            _ => Err(Broken),
        }
    }

    /// Returns a frame to the peer.
    pub(super) fn recycle(&mut self, frame: Frame) {
        let Ok(place) = self.parked.park(frame, false) else {
            return;
        };
        let entry = Entry {
            place: u16::try_from(place).unwrap_or(u16::MAX),
            len: 0,
            epoch: 0,
        };
        // There are no more frames than entries.
        let pushed = self.returns.push(entry.encode());
        self.judged(pushed);
    }

    /// Calls `complete` with the place of each frame that the peer has returned.
    pub(super) fn complete(&mut self, mut complete: impl FnMut(usize)) {
        if self.has_count == 0 {
            return;
        }
        loop {
            let popped = self.returned.pop();
            let Some(Some(entry)) = self.judged(popped) else {
                break;
            };
            let entry = Entry::decode(entry).ok_or(Broken);
            let Some(entry) = self.judged(entry) else {
                break;
            };
            let place = usize::from(entry.place);
            let had = self.has.get_mut(place).and_then(Option::take);
            if self.judged(had.ok_or(Broken)).is_none() {
                break;
            }
            self.has_count -= 1;
            complete(place);
        }
        self.returned.release();
    }

    /// The peer has ended: place and length of each frame that it had.
    pub(super) fn into_frames(self) -> impl Iterator<Item = (usize, usize)> {
        let places = self.has.into_iter().enumerate();
        places.filter_map(|(place, len)| Some((place, len?)))
    }

    /// Shows the peer what was sent and returned, and wakes it for the former. True if it was sent
    /// anything.
    pub(super) fn flush(&mut self) -> bool {
        self.returns.publish();
        let has_sent = self.sent.publish();
        if has_sent {
            self.bell.ring();
        }
        has_sent
    }

    /// After the first error the peer's rings are not used any longer.
    fn judged<T>(&mut self, done: Result<T, Broken>) -> Option<T> {
        if done.is_err() && !self.is_broken {
            log::error!("a peer has broken the rules of its rings: its frames are ignored");
            self.is_broken = true;
        }
        done.ok()
    }
}
