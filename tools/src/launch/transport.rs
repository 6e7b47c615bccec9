//! Transport that devices report to a program. Some programs work over InfiniBand's only, though
//! nothing else is of InfiniBand.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::ValueEnum;

/// What `--transport` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Transport {
    /// InfiniBand for programs that are known to need it, otherwise iWARP
    #[default]
    Auto,
    /// iWARP, which it is
    Iwarp,
    /// InfiniBand
    Ib,
}

/// A known program, and whether it needs InfiniBand with these arguments (`rdma/dropin/DESIGN.md`
/// has the reasons).
type Known = (&'static str, fn(&[OsString]) -> bool);

const KNOWN: [Known; 4] = [
    ("tgtd", |_arguments| true),
    ("ucx_info", |_arguments| true),
    ("ucx_perftest", |_arguments| true),
    ("ib_send_bw", |arguments| {
        !arguments.iter().any(|it| is_rdma_cm(it))
    }),
];

/// Whether perftest is asked to connect by librdmacm: by a long option, or by a letter among short
/// ones.
fn is_rdma_cm(argument: &OsStr) -> bool {
    let Some(argument) = argument.to_str() else {
        return false;
    };
    let letters = argument.strip_prefix('-').unwrap_or_default();
    let are_letters = letters.chars().all(|it| it.is_ascii_alphabetic());
    argument == "--rdma_cm" || are_letters && letters.contains('R')
}

impl Transport {
    /// The value of `XWARP_TRANSPORT` for a program; `None` to leave it as it is. UCX uses no iWARP
    /// device, so a program whose packages have it gets InfiniBand.
    pub(super) fn of(
        self,
        program: &OsStr,
        arguments: &[OsString],
        has_ucx: impl FnOnce() -> bool,
    ) -> Option<&'static str> {
        let name = Path::new(program).file_name()?;
        let needs = |(known, needs): &Known| name == *known && needs(arguments);
        match self {
            Self::Iwarp => Some("iwarp"),
            Self::Ib => Some("ib"),
            Self::Auto => (KNOWN.iter().any(needs) || has_ucx()).then_some("ib"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(transport: Transport, command: &str, has_ucx: bool) -> Option<&'static str> {
        let words: Vec<_> = command.split(' ').map(OsString::from).collect();
        let (program, arguments) = words.split_first().expect("a program");
        transport.of(program, arguments, || has_ucx)
    }

    #[test]
    fn program_with_ucx_gets_infiniband_unless_the_user_says_otherwise() {
        let with_ucx = |transport| chosen(transport, "python3 serve.py", true);
        assert_eq!(with_ucx(Transport::Auto), Some("ib"));
        assert_eq!(with_ucx(Transport::Iwarp), Some("iwarp"));
        assert_eq!(chosen(Transport::Auto, "python3 serve.py", false), None);
    }

    #[test]
    fn program_that_needs_infiniband_gets_it_unless_the_user_says_otherwise() {
        let cases = [
            (Transport::Auto, "tgtd -f", Some("ib")),
            (Transport::Auto, "/usr/sbin/tgtd", Some("ib")),
            (Transport::Auto, "ib_send_bw -n 5 10.0.0.2", Some("ib")),
            (Transport::Auto, "ib_send_bw -n 5 -R", None),
            (Transport::Auto, "ib_send_bw -aR", None),
            (Transport::Auto, "ib_send_bw --rdma_cm", None),
            (Transport::Auto, "ib_send_bw --report_gbits", Some("ib")),
            (Transport::Auto, "ib_write_bw", None),
            (Transport::Auto, "rping -s", None),
            (Transport::Iwarp, "tgtd", Some("iwarp")),
            (Transport::Ib, "rping -s", Some("ib")),
        ];
        for (transport, command, expected) in cases {
            assert_eq!(
                chosen(transport, command, false),
                expected,
                "{transport:?}: {command}"
            );
        }
    }
}
