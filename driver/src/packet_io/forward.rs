//! Forwarding: methods of [`PacketIo`](crate::PacketIo) that a queue around another one leaves to
//! that.

/// Writes the methods that are named, in an implementation of `PacketIo`: each calls the same of
/// the field in front.
macro_rules! forward {
    ($to:ident: $($method:ident),+ $(,)?) => {
        $( $crate::packet_io::forward::forward!(@$method $to); )+
    };
    (@receive $to:ident) => {
        fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
            self.$to.receive(budget, out);
        }
    };
    (@recycle $to:ident) => {
        fn recycle(&mut self, frame: RxFrame) {
            self.$to.recycle(frame);
        }
    };
    (@owns $to:ident) => {
        fn owns(&self, frame: &RxFrame) -> bool {
            self.$to.owns(frame)
        }
    };
    (@tx_frame $to:ident) => {
        fn tx_frame(&mut self) -> Option<TxFrame> {
            self.$to.tx_frame()
        }
    };
    (@send $to:ident) => {
        fn send(&mut self, frame: TxFrame) {
            self.$to.send(frame);
        }
    };
    (@send_kept $to:ident) => {
        fn send_kept(&mut self, frame: TxFrame) -> SentFrame {
            self.$to.send_kept(frame)
        }
    };
    (@keep $to:ident) => {
        fn keep(&mut self, frame: TxFrame) -> SentFrame {
            self.$to.keep(frame)
        }
    };
    (@reclaim $to:ident) => {
        fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
            self.$to.reclaim(sent)
        }
    };
    (@release $to:ident) => {
        fn release(&mut self, sent: SentFrame) {
            self.$to.release(sent);
        }
    };
    (@tx_free $to:ident) => {
        fn tx_free(&self) -> usize {
            self.$to.tx_free()
        }
    };
    (@rx_frames $to:ident) => {
        fn rx_frames(&self) -> usize {
            self.$to.rx_frames()
        }
    };
    (@discard $to:ident) => {
        fn discard(&mut self, frame: TxFrame) {
            self.$to.discard(frame);
        }
    };
    (@flush $to:ident) => {
        fn flush(&mut self) -> Result<(), IoError> {
            self.$to.flush()
        }
    };
    (@backlog $to:ident) => {
        fn backlog(&self) -> bool {
            self.$to.backlog()
        }
    };
    (@set_up $to:ident) => {
        fn set_up(&mut self, up: bool) {
            self.$to.set_up(up);
        }
    };
    (@too_big $to:ident) => {
        fn too_big(&mut self) -> Option<Icmp> {
            self.$to.too_big()
        }
    };
    (@offers_checksums $to:ident) => {
        fn offers_checksums(&self) -> bool {
            self.$to.offers_checksums()
        }
    };
    (@has_looped $to:ident) => {
        fn has_looped(&self) -> bool {
            self.$to.has_looped()
        }
    };
    (@is_looped $to:ident) => {
        fn is_looped(&self, frame: &RxFrame) -> bool {
            self.$to.is_looped(frame)
        }
    };
    (@stays_on_host $to:ident) => {
        fn stays_on_host(&self, next_hop: [u8; 6]) -> bool {
            self.$to.stays_on_host(next_hop)
        }
    };
    (@mtu_towards $to:ident) => {
        fn mtu_towards(&self, next_hop: [u8; 6]) -> Option<usize> {
            self.$to.mtu_towards(next_hop)
        }
    };
    (@trusts $to:ident) => {
        fn trusts(&self, frame: &RxFrame) -> bool {
            self.$to.trusts(frame)
        }
    };
    (@needs_no_checksum $to:ident) => {
        fn needs_no_checksum(&self, next_hop: [u8; 6]) -> bool {
            self.$to.needs_no_checksum(next_hop)
        }
    };
    (@has_crossed $to:ident) => {
        fn has_crossed(&self, frame: &RxFrame) -> bool {
            self.$to.has_crossed(frame)
        }
    };
    (@readiness $to:ident) => {
        fn readiness(&self) -> Option<BorrowedFd<'_>> {
            self.$to.readiness()
        }
    };
    (@levels $to:ident) => {
        fn levels(&self) -> QueueLevels {
            self.$to.levels()
        }
    };
    (@diagnosis $to:ident) => {
        fn diagnosis(&self) -> String {
            self.$to.diagnosis()
        }
    };
    (@counters $to:ident) => {
        fn counters(&self) -> IoCounters {
            self.$to.counters()
        }
    };
}

pub(crate) use forward;
