//! A client's files as the switch has them.

use std::os::fd::{AsFd, OwnedFd};

use xwarp_switchd::{ClientMemory, Delivery, Head, Hostile};

use super::file::{self, FileError, MappedWord, Mapping, Writers};
use super::layout::{CAPACITY, ENTRIES, Entry, FILE, FRAMES, flags, offset_of};
use super::ring::{Broken, Consumer, Producer};
use super::rings::FileRing;
use crate::memory::SharedBytes;
use crate::wake::{RemoteDoorbell, SleepFlag};

impl From<Broken> for Hostile {
    fn from(_: Broken) -> Self {
        Self
    }
}

/// What a client gives the switch when it attaches.
pub(super) struct Given {
    /// The client's file.
    pub(super) up: OwnedFd,
    /// Who sleeps.
    pub(super) flags: OwnedFd,
    /// The socket that wakes the client.
    pub(super) bell: OwnedFd,
}

/// Both files of a client. All that the client has written is read through copies.
pub(super) struct ClientFiles {
    sent: Consumer<FileRing>,
    lent: Consumer<FileRing>,
    delivered: Producer<FileRing>,
    up: SharedBytes,
    down: SharedBytes,
    epoch: u16,
    refused: u64,
    is_hostile: bool,
    bell: RemoteDoorbell,
}

/// What of a client's files the program needs that runs the switch.
pub(super) struct ClientPart {
    /// The switch's file, for the client.
    pub(super) down: OwnedFd,
    /// By this flag the client sees that the switch sleeps.
    pub(super) switch_asleep: SleepFlag<MappedWord>,
}

impl ClientFiles {
    /// Maps the client's files, and makes the switch's.
    pub(super) fn new(given: &Given, epoch: u16) -> Result<(Self, ClientPart), FileError> {
        let up = Mapping::of(given.up.as_fd(), FILE, Writers::Maker)?;
        let flags = Mapping::of(given.flags.as_fd(), flags::BYTES, Writers::All)?;
        let (down_file, down) = file::create(c"xwarp-down", FILE, Writers::Maker)?;
        let bell = given.bell.try_clone()?;
        let files = Self {
            sent: Consumer::behind(FileRing::sent(&up, &down)),
            lent: Consumer::behind(FileRing::lent(&up, &down)),
            delivered: Producer::new(FileRing::delivered(&up, &down)),
            bell: RemoteDoorbell::new(MappedWord::new(&flags, flags::CLIENT_ASLEEP), bell),
            up: up.bytes(),
            down: down.own_bytes(),
            epoch,
            refused: 0,
            is_hostile: false,
        };
        let part = ClientPart {
            down: down_file,
            switch_asleep: SleepFlag::over(MappedWord::new(&flags, flags::SWITCH_ASLEEP)),
        };
        Ok((files, part))
    }

    /// A copy of a frame's first bytes; `None` for a frame outside of the file.
    fn head(&self, entry: Entry) -> Option<Head> {
        let offset = offset_of(entry.place.into())?;
        let mut read = Ok(());
        let head = Head::copied(entry.len as usize, |into| {
            read = self.up.read(offset, into);
        });
        read.ok().map(|()| head)
    }

    /// The next frame that the client has lent of its present file.
    fn take_lent(&mut self) -> Result<Option<u16>, Broken> {
        for _ in 0..=ENTRIES {
            let Some(entry) = self.lent.pop()? else {
                return Ok(None);
            };
            match Entry::decode(entry) {
                Some(entry) if entry.epoch == self.epoch => return Ok(Some(entry.place)),
                Some(_) => {}
                None => self.refused += 1,
            }
        }
        Err(Broken)
    }

    /// After the first error all further calls fail.
    fn judged<T>(&mut self, done: Result<T, Broken>) -> Result<T, Hostile> {
        self.is_hostile |= done.is_err();
        if self.is_hostile {
            return Err(Hostile);
        }
        Ok(done?)
    }

    fn write(&mut self, to: u16, head: &Head, from: Option<(&Self, Entry)>) -> bool {
        let Some(offset) = offset_of(to.into()) else {
            return false;
        };
        let bytes = head.bytes();
        if self.down.write(offset, bytes).is_err() {
            return false;
        }
        let Some((from, sent)) = from else {
            return true;
        };
        let rest = head.frame_len() - bytes.len();
        let Some(begin) = offset_of(sent.place.into()) else {
            return false;
        };
        let (to, from_at) = (offset + bytes.len(), begin + bytes.len());
        self.down.copy_from(to, &from.up, from_at, rest).is_ok()
    }

    fn try_deliver(
        &mut self,
        head: &Head,
        from: Option<(&Self, Entry)>,
    ) -> Result<Delivery, Broken> {
        let Some(place) = self.take_lent()? else {
            return Ok(Delivery::NoRoom);
        };
        if !self.write(place, head, from) {
            return Err(Broken);
        }
        let entry = Entry {
            place,
            len: u32::try_from(head.frame_len()).unwrap_or(u32::MAX),
            epoch: self.epoch,
        };
        // A client that takes no frames off lends none either, unless it does not keep the rules.
        let pushed = self.delivered.push(entry.encode())?;
        if pushed {
            Ok(Delivery::Delivered)
        } else {
            Err(Broken)
        }
    }
}

impl ClientMemory for ClientFiles {
    type Sent = Entry;

    fn take_sent(&mut self) -> Result<Option<(Entry, Head)>, Hostile> {
        for _ in 0..=ENTRIES {
            let popped = self.sent.pop();
            let Some(entry) = self.judged(popped)? else {
                return Ok(None);
            };
            let frame = Entry::decode(entry).and_then(|entry| Some((entry, self.head(entry)?)));
            match frame {
                Some(frame) => return Ok(Some(frame)),
                None => self.refused += 1,
            }
        }
        self.judged(Err(Broken))
    }

    fn refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    fn complete(&mut self) {
        self.sent.release();
    }

    fn deliver(&mut self, head: &Head, from: Option<(&Self, Entry)>) -> Result<Delivery, Hostile> {
        let delivered = self.try_deliver(head, from);
        self.judged(delivered)
    }

    fn publish(&mut self) {
        self.lent.release();
        if self.delivered.publish() {
            self.bell.ring();
        }
    }

    fn frames(&self) -> Vec<Head> {
        let places = 0..u16::try_from(FRAMES).unwrap_or(u16::MAX);
        // Nothing says how long they were; their headers do.
        let entry = |place| Entry {
            place,
            len: u32::try_from(CAPACITY).unwrap_or(u32::MAX),
            epoch: 0,
        };
        places.map(entry).filter_map(|it| self.head(it)).collect()
    }
}
