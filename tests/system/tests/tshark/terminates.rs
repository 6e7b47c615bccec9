//! Every Terminate that the RFCs register, with every form of returned header that its layer has.

use xwarp_iwarp::rdmap::TerminateControl;
use xwarp_iwarp::{Framer, ReadRequest, SendKind, Sender, Stag, StreamConfig, TermCode, Terminate};
use xwarp_system_tests::dissection::{Cable, dissect, fpdu};

use crate::support::{Exception, STARTUP, assert_shown};

/// What of the offending segment comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Nothing: M, D and R are clear.
    Nothing,
    /// A Write's header: M and D.
    Tagged,
    /// A Send's header: M and D.
    Untagged,
    /// A Read Request's headers: M, D and R.
    ReadRequest,
}

impl Form {
    /// RDMAP and DDP return headers of the segment that they refuse; tagged errors are errors of
    /// tagged segments (RFC 5040 §4.8).
    fn of(code: TermCode) -> &'static [Self] {
        match (code.layer(), code.etype()) {
            (0, 1 | 2) => &[
                Self::Nothing,
                Self::Tagged,
                Self::Untagged,
                Self::ReadRequest,
            ],
            (1, 1) => &[Self::Nothing, Self::Tagged],
            (1, 2) => &[Self::Nothing, Self::Untagged],
            _ => &[Self::Nothing],
        }
    }

    fn flags(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Tagged | Self::Untagged => TerminateControl::M | TerminateControl::D,
            Self::ReadRequest => TerminateControl::M | TerminateControl::D | TerminateControl::R,
        }
    }

    /// The DDP header and the RDMAP header.
    fn headers(self) -> (Vec<u8>, Vec<u8>) {
        let mut sender = Sender::new(StreamConfig::new(4, 4));
        let read = ReadRequest {
            sink: Stag(0x5566_7788),
            sink_to: 0x2000,
            len: 0x10,
            source: Stag(0x1122_3344),
            source_to: 0x1000,
        };
        let mut message = match self {
            Self::Nothing => return (Vec::new(), Vec::new()),
            Self::Tagged => sender.write(Stag(0x1122_3344), 0x1ffe, 4),
            Self::Untagged => sender.send(SendKind::default(), 4),
            Self::ReadRequest => sender.read_request(&read),
        };
        let segment = message.next_segment(1442).expect("a new message");
        let ddp = if self == Self::Tagged { 14 } else { 18 };
        let (ddp, rdmap) = segment.header.split_at(ddp);
        (ddp.to_vec(), rdmap.to_vec())
    }
}

/// `ULPDU_Length` of the offending segment: any.
const SEGMENT_LENGTH: [u8; 2] = [0, 46];

/// One Terminate.
struct Case {
    code: TermCode,
    form: Form,
}

impl Case {
    /// Every registered code with every form.
    fn all() -> Vec<Self> {
        let families: [fn(u8) -> TermCode; 7] = [
            |_| TermCode::rdmap_local(),
            TermCode::rdmap_protection,
            TermCode::rdmap_operation,
            |_| TermCode::ddp_local(),
            TermCode::ddp_tagged,
            TermCode::ddp_untagged,
            TermCode::mpa,
        ];
        let mut codes: Vec<TermCode> = families
            .into_iter()
            .flat_map(|family| (0..=u8::MAX).map(family))
            .filter(|code| code.is_known())
            .collect();
        codes.dedup();
        let cases = |code: TermCode| Form::of(code).iter().map(move |&form| Self { code, form });
        codes.into_iter().flat_map(cases).collect()
    }

    fn ulpdu(&self) -> Vec<u8> {
        let mut ulpdu = Terminate::with_code(self.code).ulpdu().to_vec();
        ulpdu[20] = self.form.flags();
        if self.form != Form::Nothing {
            let (ddp, rdmap) = self.form.headers();
            ulpdu.extend(SEGMENT_LENGTH);
            ulpdu.extend(ddp);
            ulpdu.extend(rdmap);
        }
        ulpdu
    }
}

#[test]
fn every_terminate_is_shown_as_it_was_sent() {
    let cases = Case::all();
    assert!(cases.len() > 80, "{} codes and forms", cases.len());
    let mut cable = Cable::default();
    for case in &cases {
        let piece = fpdu(&mut Framer::new(true, false), &case.ulpdu());
        cable.talk(&[STARTUP[0].to_vec(), piece], &[STARTUP[1].to_vec()]);
    }
    let shown = assert_shown(&dissect(&cable.frames));
    let sent: Vec<Vec<u8>> = cases.iter().map(Case::ulpdu).collect();
    assert!(shown == sent, "tshark shows other ULPDUs than were sent");
    for exception in [
        Some(Exception::HeaderCutShort),
        Some(Exception::HeaderTooLong),
        None,
    ] {
        let of = |ulpdu: &&Vec<u8>| Exception::of(ulpdu) == exception;
        assert!(
            sent.iter().any(|ulpdu| of(&ulpdu)),
            "no Terminate for {exception:?}"
        );
    }
}
