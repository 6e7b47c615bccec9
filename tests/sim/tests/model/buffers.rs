//! The receive buffers of a host, and what they hold.

use std::collections::BTreeMap;

use xwarp::{Access, MemoryRegion, Sge};
use xwarp_sim_tests::Host;

use crate::LONGEST;

/// Buffers of a host: more than all of its queues hold.
const BUFFERS: usize = 64;

pub(crate) struct Buffers {
    region: MemoryRegion,
    free: Vec<usize>,
    posted: BTreeMap<u64, usize>,
    known: Vec<Vec<u8>>,
    next_id: u64,
}

impl Buffers {
    pub(crate) fn new(host: &Host) -> Self {
        Self {
            region: host.region(BUFFERS * LONGEST, Access::LOCAL_WRITE),
            free: (0..BUFFERS).collect(),
            posted: BTreeMap::new(),
            known: vec![vec![0; LONGEST]; BUFFERS],
            next_id: 1,
        }
    }

    /// Takes a free buffer, and gives it a name.
    pub(crate) fn take(&mut self) -> (u64, Sge) {
        let (id, buffer) = (self.next_id, self.free.pop().unwrap());
        self.next_id += 1;
        self.posted.insert(id, buffer);
        let len = u32::try_from(LONGEST).unwrap();
        (id, self.region.local((buffer * LONGEST) as u64, len))
    }

    /// One was not posted after all.
    pub(crate) fn put_back(&mut self, id: u64) {
        self.free.push(self.posted.remove(&id).unwrap());
    }

    /// One has come back with a message, or with nothing that is defined.
    pub(crate) fn ended(&mut self, id: u64, message: Option<&[u8]>) {
        let buffer = self.posted.remove(&id).unwrap();
        self.free.push(buffer);
        let bytes = self.bytes(buffer);
        let known = &mut self.known[buffer];
        if let Some(message) = message {
            known[..message.len()].copy_from_slice(message);
            assert_eq!(&bytes, known, "receive {id}");
        }
        *known = bytes;
    }

    fn bytes(&self, buffer: usize) -> Vec<u8> {
        let mut bytes = vec![0; LONGEST];
        self.region
            .bytes()
            .read(buffer * LONGEST, &mut bytes)
            .unwrap();
        bytes
    }

    /// Asserts that the buffers that are not posted are unchanged.
    pub(crate) fn check(&self) {
        for buffer in &self.free {
            assert!(
                self.bytes(*buffer) == self.known[*buffer],
                "buffer {buffer} is nobody's"
            );
        }
    }
}
