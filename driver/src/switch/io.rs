//! Queue of an RNIC whose other end is a switch.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use xwarp_switchd::{MacAddress, SWITCH};

use super::control::Control;
use super::file::{MappedWord, Mapping};
use super::layout::{Entry, FRAMES, flags, frames};
use super::mailbox::{Mailbox, NewSwitch, News};
use super::peer::Peer;
use super::processor::{GivingWay, Processor};
use super::ring::{Broken, Consumer, Producer};
use super::rings::FileRing;
use crate::memory::Arena;
use crate::packet_io::{
    BURST, Frame, FramePool, IoCounters, IoError, PacketIo, Parking, QueueLevels, RxFrame,
    SentFrame, TxFrame,
};
use crate::wake::SleepFlag;

/// Frames that the switch has to receive into. The rest are with TCP; the one that came back last
/// is lent first, whose memory is in the cache.
const LENT: usize = 384;
/// With fewer free frames, and some that the switch has not taken, it is asked again soon.
const FEW: usize = 32;

/// A [`PacketIo`] whose frames go by a switch to other programs of this host. A switch that ends is
/// no failure of it: frames wait until another one has taken its place, and TCP sends again what
/// was lost.
pub struct SwitchIo {
    up: Mapping,
    /// Frames to send.
    pool: FramePool,
    sent: Producer<FileRing>,
    /// Places of the sent frames that have not completed, the oldest first.
    in_flight: VecDeque<usize>,
    /// How many have ever completed.
    completed: u32,
    receiving: Receiving,
    /// Clients whose frames do not go by the switch.
    peers: Vec<Peer>,
    /// Frames of those that have ended, some of which TCP may still have.
    former: Vec<Weak<Arena>>,
    /// Frames that are received before all others.
    first: VecDeque<RxFrame>,
    mailbox: Arc<Mailbox>,
    control: Arc<Control>,
    switch_asleep: SleepFlag<MappedWord>,
    giving_way: GivingWay,
    counters: IoCounters,
    /// The switch has broken the rules of a ring, and is not used.
    is_broken: bool,
    /// There was a switch or a peer some of whose frames TCP may still have.
    has_lost: bool,
}

/// Frames of one file `down`.
struct Receiving {
    arena: Arc<Arena>,
    /// Frames that the switch has.
    parked: Parking,
    spare: Vec<Frame>,
    lent_count: usize,
    lent: Producer<FileRing>,
    delivered: Consumer<FileRing>,
    epoch: u16,
}

impl Receiving {
    fn new(lent: Producer<FileRing>, up: &Mapping, down: &Mapping, epoch: u16) -> Self {
        let (arena, spare) = received(down);
        Self {
            parked: Parking::new(Arc::clone(&arena)),
            arena,
            spare,
            lent_count: 0,
            lent,
            delivered: Consumer::new(FileRing::delivered(up, down)),
            epoch,
        }
    }

    /// Goes on with the file of another switch. Frames of the former live until TCP has read them.
    fn move_to(&mut self, up: &Mapping, down: &Mapping, epoch: u16) -> Result<(), Broken> {
        self.lent.continue_at(FileRing::lent(up, down))?;
        (self.arena, self.spare) = received(down);
        self.parked = Parking::new(Arc::clone(&self.arena));
        self.delivered = Consumer::new(FileRing::delivered(up, down));
        (self.lent_count, self.epoch) = (0, epoch);
        self.lend()
    }

    /// Lends the switch as many frames as it should have.
    fn lend(&mut self) -> Result<(), Broken> {
        while self.lent_count < LENT {
            let Some(frame) = self.spare.pop() else { break };
            let Ok(place) = self.parked.park(frame, false) else {
                break;
            };
            let entry = Entry {
                place: u16::try_from(place).map_err(|_| Broken)?,
                len: 0,
                epoch: self.epoch,
            };
            // There are no more frames than entries.
            if !self.lent.push(entry.encode())? {
                return Err(Broken);
            }
            self.lent_count += 1;
        }
        self.lent.publish();
        Ok(())
    }

    fn receive(
        &mut self,
        budget: usize,
        counters: &mut IoCounters,
        out: &mut Vec<RxFrame>,
    ) -> Result<(), Broken> {
        let before = out.len();
        while out.len() - before < budget {
            let Some(entry) = self.delivered.pop()? else {
                break;
            };
            let entry = Entry::decode(entry).ok_or(Broken)?;
            let returned = self.parked.returned(entry.place.into());
            let Ok(Some(frame)) = returned else {
                return Err(Broken);
            };
            self.lent_count -= 1;
            let frame = RxFrame::new(frame, entry.len as usize);
            counters.rx_frames += 1;
            counters.rx_bytes += frame.len() as u64;
            out.push(frame);
        }
        if out.len() > before {
            self.delivered.release();
            self.lend()?;
        }
        Ok(())
    }
}

fn complete(pool: &mut FramePool, place: usize) {
    let completed = pool.complete(place);
    debug_assert!(completed.is_ok(), "a frame that was sent is gone");
}

/// The frames of a file of a switch's, the first of which is the last to be popped.
fn received(down: &Mapping) -> (Arc<Arena>, Vec<Frame>) {
    let (arena, mut frames) = down.received().into_frames(&[frames()], 0);
    frames.reverse();
    (arena, frames)
}

impl SwitchIo {
    pub(super) fn new(
        up: Mapping,
        flags: &Mapping,
        first: &NewSwitch,
        mailbox: Arc<Mailbox>,
        control: Arc<Control>,
    ) -> Self {
        let (arena, mut free) = up.arena().into_frames(&[frames()], 0);
        free.reverse();
        let lent = Producer::new(FileRing::lent(&up, &first.down));
        let mut io = Self {
            pool: FramePool::new(arena, free),
            sent: Producer::new(FileRing::sent(&up, &first.down)),
            in_flight: VecDeque::with_capacity(FRAMES),
            completed: 0,
            receiving: Receiving::new(lent, &up, &first.down, first.epoch),
            switch_asleep: SleepFlag::over(MappedWord::new(flags, flags::SWITCH_ASLEEP)),
            giving_way: GivingWay::new(Processor::new(MappedWord::new(flags, flags::PROCESSOR))),
            peers: Vec::new(),
            former: Vec::new(),
            first: VecDeque::new(),
            up,
            mailbox,
            control,
            counters: IoCounters::default(),
            is_broken: false,
            has_lost: false,
        };
        let lends = io.receiving.lend();
        io.judge(lends);
        io
    }

    /// After the first error the switch is not used until another takes its place.
    fn judge(&mut self, done: Result<(), Broken>) {
        if done.is_err() && !self.is_broken {
            log::error!("the switch has broken the rules of its rings: its frames are ignored");
            self.is_broken = true;
        }
    }

    #[cold]
    fn take_news(&mut self) {
        for news in self.mailbox.take() {
            match news {
                News::Switch(switch) => self.change_switch(&switch),
                News::Peer(peer) => self.add_peer(Peer::new(peer)),
                News::Gone(mac) => self.remove_peer(mac),
            }
        }
    }

    /// Goes on with another switch: what the former had not carried is lost. The new one is woken
    /// in any case: it may have announced its sleep while there was no socket yet to wake it by.
    fn change_switch(&mut self, switch: &NewSwitch) {
        (self.is_broken, self.has_lost) = (false, true);
        let moved = self.move_to(&switch.down, switch.epoch);
        self.judge(moved);
        self.control.ring();
    }

    /// A switch that was started anew does not know which peers there are already.
    fn add_peer(&mut self, peer: Peer) {
        if self.peer_at(peer.mac()).is_none() {
            self.peers.push(peer);
        }
    }

    /// A peer has ended. What it has sent is received yet. What it has not taken goes by the
    /// switch, which answers by RSTs.
    fn remove_peer(&mut self, mac: MacAddress) {
        self.take_from_peers();
        let Some(at) = self.peer_at(mac) else {
            return;
        };
        self.has_lost = true;
        let peer = self.peers.swap_remove(at);
        self.former.retain(|arena| arena.strong_count() > 0);
        self.former.push(Arc::downgrade(peer.arena()));
        for (place, len) in peer.into_frames() {
            self.send_by_switch(place, len);
        }
        if self.sent.publish() {
            self.wake_switch();
        }
    }

    /// Receives what all peers have sent, to be passed on before the other frames.
    fn take_from_peers(&mut self) {
        let mut frames = Vec::new();
        for peer in &mut self.peers {
            peer.receive(BURST, &mut self.counters, &mut frames);
        }
        self.first.extend(frames);
    }

    fn peer_at(&self, mac: MacAddress) -> Option<usize> {
        self.peers.iter().position(|peer| peer.mac() == mac)
    }

    /// Where a frame goes to, if not to the switch.
    #[inline]
    fn peer_of(&self, frame: &TxFrame) -> Option<usize> {
        if self.peers.is_empty() {
            return None;
        }
        self.peer_at(*frame.first_chunk()?)
    }

    fn move_to(&mut self, down: &Mapping, epoch: u16) -> Result<(), Broken> {
        self.sent.continue_at(FileRing::sent(&self.up, down))?;
        self.receiving.move_to(&self.up, down, epoch)
    }

    fn emit(&mut self, frame: TxFrame, kept: bool) -> SentFrame {
        let len = frame.len();
        if self.mailbox.has_any() {
            self.take_news();
        }
        let peer = self.peer_of(&frame);
        let parked = self.pool.park(frame.into_frame(), kept);
        if let Ok(place) = parked {
            self.counters.tx_frames += 1;
            self.counters.tx_bytes += len as u64;
            if let Some(at) = peer {
                if !self.peers[at].send(place, len) {
                    complete(&mut self.pool, place);
                }
            } else {
                self.send_by_switch(place, len);
            }
        }
        self.pool.token(parked, len)
    }

    fn send_by_switch(&mut self, place: usize, len: usize) {
        self.in_flight.push_back(place);
        let pushed = self.push(place, len);
        self.judge(pushed);
    }

    fn push(&mut self, place: usize, len: usize) -> Result<(), Broken> {
        let entry = Entry {
            place: u16::try_from(place).map_err(|_| Broken)?,
            len: u32::try_from(len).map_err(|_| Broken)?,
            epoch: 0,
        };
        // There are no more frames than entries.
        if self.sent.push(entry.encode())? {
            Ok(())
        } else {
            Err(Broken)
        }
    }

    /// Takes back what the switch has carried, and what peers have returned.
    #[inline]
    fn complete(&mut self) {
        for peer in &mut self.peers {
            peer.complete(|place| complete(&mut self.pool, place));
        }
        if self.in_flight.is_empty() {
            return;
        }
        let Ok(consumed) = self.sent.consumed() else {
            return self.judge(Err(Broken));
        };
        while self.completed != consumed {
            let Some(place) = self.in_flight.pop_front() else {
                return self.judge(Err(Broken));
            };
            self.completed = self.completed.wrapping_add(1);
            complete(&mut self.pool, place);
        }
    }

    #[inline]
    fn pass_on_first(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        if !self.first.is_empty() {
            let count = budget.min(self.first.len());
            out.extend(self.first.drain(..count));
        }
    }

    fn is_of_peer(&self, frame: &RxFrame) -> bool {
        let frame = frame.frame();
        let is_of_former = || {
            let mut arenas = self.former.iter().filter_map(Weak::upgrade);
            arenas.any(|arena| frame.is_of(&arena))
        };
        self.peers.iter().any(|peer| peer.owns(frame)) || is_of_former()
    }

    fn wake_switch(&self) {
        if self.switch_asleep.must_wake().is_some() {
            self.control.ring();
        }
    }
}

impl PacketIo for SwitchIo {
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        if self.mailbox.has_any() {
            self.take_news();
        }
        let (before, end) = (self.counters.rx_frames, out.len() + budget);
        self.pass_on_first(budget, out);
        // A client that always sends does not starve another one.
        let share = budget.div_ceil(self.peers.len() + 1);
        for peer in &mut self.peers {
            peer.receive(share.min(end - out.len()), &mut self.counters, out);
        }
        if self.counters.rx_frames != before {
            self.giving_way.work();
        }
        if self.is_broken {
            return;
        }
        let (begin, left) = (out.len(), end - out.len());
        let received = self.receiving.receive(left, &mut self.counters, out);
        self.judge(received);
        let is_reset = |frame: &RxFrame| frame.get(6..12) == Some(&SWITCH);
        if !self.peers.is_empty()
            && let Some(at) = out[begin..].iter().position(is_reset)
        {
            // The client that has ended may have sent frames before, by a pair.
            self.take_from_peers();
            self.first.extend(out.drain(begin + at..));
            self.pass_on_first(end - out.len(), out);
        }
    }

    fn recycle(&mut self, frame: RxFrame) {
        let frame = frame.into_frame();
        if frame.is_of(&self.receiving.arena) {
            self.receiving.spare.push(frame);
        } else if let Some(peer) = self.peers.iter_mut().find(|peer| peer.owns(&frame)) {
            peer.recycle(frame);
        } else if self.pool.owns(&frame) || !self.has_lost {
            self.counters.drop_foreign += 1;
        }
        // Else the frame's file goes with its last frame.
    }

    fn owns(&self, frame: &RxFrame) -> bool {
        frame.frame().is_of(&self.receiving.arena) || self.is_of_peer(frame)
    }

    fn tx_frame(&mut self) -> Option<TxFrame> {
        let frame = self.pool.take().or_else(|| {
            self.complete();
            self.pool.take()
        });
        if frame.is_none() {
            self.counters.tx_exhausted += 1;
        }
        frame.map(TxFrame::new)
    }

    fn send(&mut self, frame: TxFrame) {
        let _completes_by_itself = self.emit(frame, false);
    }

    fn send_kept(&mut self, frame: TxFrame) -> SentFrame {
        self.emit(frame, true)
    }

    fn keep(&mut self, frame: TxFrame) -> SentFrame {
        self.pool.keep(frame)
    }

    fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.complete();
        self.pool.reclaim(sent)
    }

    fn release(&mut self, sent: SentFrame) {
        self.pool.release(&sent);
    }

    fn tx_free(&self) -> usize {
        self.pool.free()
    }

    fn rx_frames(&self) -> usize {
        FRAMES
    }

    fn discard(&mut self, frame: TxFrame) {
        self.pool.give_back(frame.into_frame());
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.complete();
        for peer in &mut self.peers {
            if peer.flush() {
                self.giving_way.work();
            }
        }
        if self.sent.publish() {
            self.wake_switch();
        }
        if !self.peers.is_empty() {
            let peers = &self.peers;
            (self.giving_way).end_turn(|processor| peers.iter().any(|it| it.is_on(processor)));
        }
        Ok(())
    }

    /// The switch and peers take frames by themselves. Only while few are free is it worth to look
    /// soon whether they have.
    fn backlog(&self) -> bool {
        let waits = || !self.in_flight.is_empty() || self.peers.iter().any(Peer::has_frames);
        self.pool.free() < FEW && waits()
    }

    fn set_up(&mut self, _up: bool) {}

    fn has_looped(&self) -> bool {
        !self.is_broken && self.receiving.delivered.has_any()
            || self.peers.iter().any(Peer::has_any)
            || !self.first.is_empty()
            || self.mailbox.has_any()
    }

    /// All peers are programs of this host.
    fn is_looped(&self, _frame: &RxFrame) -> bool {
        true
    }

    /// All next hops are the switch or such programs.
    fn stays_on_host(&self, _next_hop: [u8; 6]) -> bool {
        true
    }

    /// Frames of peers do not leave memory. The switch carries frames of programs that are not
    /// trusted, which might lie.
    fn trusts(&self, frame: &RxFrame) -> bool {
        self.is_of_peer(frame)
    }

    fn needs_no_checksum(&self, next_hop: [u8; 6]) -> bool {
        self.peer_at(next_hop).is_some() || self.mailbox.has_peer(next_hop)
    }

    /// None: the switch wakes the engine by the engine's own doorbell.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> IoCounters {
        let mut counters = self.counters;
        counters.drop_foreign += self.pool.refused();
        counters
    }

    fn levels(&self) -> QueueLevels {
        let receiving = &self.receiving;
        QueueLevels {
            rx_chunks_lent: receiving.lent_count as u64,
            rx_chunks_spare: receiving.spare.len() as u64,
            tx_frames_free: self.pool.free() as u64,
            tx_frames_in_flight: self.in_flight.len() as u64,
            ..QueueLevels::default()
        }
    }
}
