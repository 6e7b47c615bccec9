//! Messages between a client and the software switch.

use std::collections::BTreeSet;
use std::fmt::Debug;

use xwarp_switchd::{MESSAGE_MAX, Malformed, ToClient, ToSwitch};

use crate::Behaviour;

/// One datagram, to the switch and to a client. A message has the bytes that it was decoded from.
pub fn control(input: &[u8]) -> Behaviour {
    let to_switch = judge(input, &ToSwitch::decode(input), ToSwitch::encode);
    let to_client = judge(input, &ToClient::decode(input), ToClient::encode);
    let kind = input.first().copied().unwrap_or(0);
    let text = format!("{kind} {}", input.len());
    Behaviour::of(&text, &BTreeSet::from([to_switch, to_client]))
}

/// Name of the message or of what is malformed.
fn judge<M: Debug>(
    input: &[u8],
    decoded: &Result<M, Malformed>,
    encode: fn(&M) -> Vec<u8>,
) -> String {
    let text = match decoded {
        Ok(message) => {
            assert!(input.len() <= MESSAGE_MAX);
            assert_eq!(encode(message), input);
            format!("{message:?}")
        }
        Err(malformed) => {
            assert!(!malformed.to_string().is_empty());
            format!("{malformed:?}")
        }
    };
    let is_letter = |c: &char| c.is_ascii_alphabetic();
    text.chars().take_while(is_letter).collect()
}
