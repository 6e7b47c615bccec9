//! IPv4 options of a received packet (RFC 791 §3.1): checked as Linux checks them, and otherwise
//! ignored.

use crate::wire::discard::Discard;

/// Option types, including copied flag and class.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
const LOOSE_SOURCE_ROUTE: u8 = 131;
/// Commercial IP Security: a label that xwarp cannot judge. Linux refuses labels of domains that
/// are not configured.
const CIPSO: u8 = 134;
const STRICT_SOURCE_ROUTE: u8 = 137;
const ROUTER_ALERT: u8 = 148;
/// Length in bytes of an address or a timestamp.
const SLOT: usize = 4;

/// Options that a header may have only once.
#[derive(Default)]
struct Seen {
    route: bool,
    timestamp: bool,
}

/// Refuses malformed options and source routes (RFC 7126 §4.3, §4.4).
#[cold]
pub(super) fn check(options: &[u8]) -> Result<(), Discard> {
    let mut seen = Seen::default();
    let mut rest = options;
    while let Some((&kind, behind)) = rest.split_first() {
        match kind {
            END => break,
            NO_OPERATION => rest = behind,
            _ => {
                let (option, next) = split(rest).ok_or(Discard::BadIpOption)?;
                judge(kind, option, &mut seen)?;
                rest = next;
            }
        }
    }
    Ok(())
}

/// Splits the first option off `rest`. Its length covers type and length.
fn split(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(*rest.get(1)?);
    rest.split_at_checked(len).filter(|_| len >= 2)
}

fn judge(kind: u8, option: &[u8], seen: &mut Seen) -> Result<(), Discard> {
    let sound = match kind {
        LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Err(Discard::SourceRoute),
        RECORD_ROUTE => has_room(option, 4, SLOT) && !std::mem::replace(&mut seen.route, true),
        TIMESTAMP => is_timestamp(option) && !std::mem::replace(&mut seen.timestamp, true),
        ROUTER_ALERT => option.len() >= 4,
        CIPSO => false,
        _ => true, // RFC 1122 §3.2.1.8: ignored
    };
    sound.then_some(()).ok_or(Discard::BadIpOption)
}

/// True if the pointer (the third byte, counted from 1) is at least `first`, and points to a free
/// slot or behind the last one.
fn has_room(option: &[u8], first: usize, slot: usize) -> bool {
    let Some(&pointer) = option.get(2) else {
        return false;
    };
    let pointer = usize::from(pointer);
    pointer >= first && (pointer > option.len() || pointer + slot - 1 <= option.len())
}

/// Checks the fourth byte: the overflow counter, and whether addresses come with the timestamps.
fn is_timestamp(option: &[u8]) -> bool {
    let Some(&[_, len, pointer, overflow_and_flag]) = option.first_chunk() else {
        return false;
    };
    let (overflow, flag) = (overflow_and_flag >> 4, overflow_and_flag & 15);
    let slot = if matches!(flag, 1 | 3) {
        2 * SLOT
    } else {
        SLOT
    };
    let full = pointer > len;
    has_room(option, 5, slot) && !(full && overflow == 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: Result<(), Discard> = Err(Discard::BadIpOption);

    #[test]
    fn what_is_sound_is_taken() {
        let full_route = [&[7, 39, 40][..], &[9; 36]].concat();
        let sound: [&[u8]; 13] = [
            &[],
            &[1, 1, 1, 1],
            &[1, 1, 1, 0],
            &[0, 0xff, 0xff, 0xff],    // padding behind the end is not checked
            &[7, 7, 4, 0, 0, 0, 0, 0], // record route, one free slot
            &full_route,               // record route, full
            &[7, 3, 4, 1],             // no slot at all
            &[68, 8, 5, 0, 0, 0, 0, 0], // timestamps only
            &[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0], // timestamps with addresses
            &[68, 8, 9, 0xe0, 0, 0, 0, 0], // full, 14 hosts without room
            &[148, 4, 0, 0],           // router alert
            &[130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], // security: ignored
            &[222, 2, 94, 4, 1, 1, 0, 0], // unknown
        ];
        for options in sound {
            assert_eq!(check(options), Ok(()), "{options:02x?}");
        }
    }

    #[test]
    fn source_routes_are_refused() {
        let routes: [&[u8]; 4] = [
            &[0x83, 7, 4, 10, 0, 0, 1, 0],
            &[0x89, 7, 4, 10, 0, 0, 1, 0],
            &[0x83, 7, 8, 10, 0, 0, 1, 0], // at its end
            &[1, 1, 0x89, 2],
        ];
        for options in routes {
            assert_eq!(check(options), Err(Discard::SourceRoute), "{options:02x?}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let bad: [&[u8]; 16] = [
            &[0xff; 40],
            &[0x22, 0, 0, 0],
            &[0x22, 1, 0, 0],
            &[0x22, 5, 0, 0],
            &[1, 1, 1, 0x22],                         // no length
            &[7, 2, 0, 0],                            // no pointer
            &[7, 7, 3, 0, 0, 0, 0, 0],                // pointer into the header
            &[7, 7, 5, 0, 0, 0, 0, 0],                // no whole slot
            &[7, 3, 4, 7, 3, 4, 0, 0],                // twice
            &[68, 3, 5, 0],                           // no flags
            &[68, 8, 4, 0, 0, 0, 0, 0],               // pointer into the header
            &[68, 8, 6, 0, 0, 0, 0, 0],               // no whole slot
            &[68, 8, 5, 1, 0, 0, 0, 0],               // no slot that holds an address, too
            &[68, 8, 9, 0xf0, 0, 0, 0, 0],            // the 16th host without room
            &[148, 3, 0, 0],                          // router alert without value
            &[134, 10, 0, 0, 0, 1, 1, 4, 0, 0, 0, 0], // CIPSO
        ];
        for options in bad {
            assert_eq!(check(options), BAD, "{options:02x?}");
        }
    }

    #[test]
    fn sound_options_in_front_do_not_hide_a_bad_one() {
        assert_eq!(check(&[148, 4, 0, 0, 7, 7, 3, 0, 0, 0, 0, 0]), BAD);
        assert_eq!(check(&[1, 0x22, 9, 0]), BAD);
    }
}
