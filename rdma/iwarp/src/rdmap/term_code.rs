//! Terminate codes: layer, Error Type and Error Code (RFC 5040 §4.8, RFC 5041 §7.2, RFC 5044 §8,
//! RFC 6581 §8).

use core::fmt;

/// Layer, Error Type and Error Code of a Terminate (RFC 5040 §4.8, RFC 5041 §7.2, RFC 5044 §8, RFC
/// 6581 §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TermCode {
    layer: u8,
    etype: u8,
    code: u8,
}

impl TermCode {
    /// RDMAP remote operation error without a further reason.
    pub const UNSPECIFIED: Self = Self::rdmap_operation(0xFF);

    /// A code from the wire: `layer` and `etype` have four bits each.
    pub(super) const fn from_wire(layer_etype: u8, code: u8) -> Self {
        Self {
            layer: layer_etype >> 4,
            etype: layer_etype & 0x0F,
            code,
        }
    }

    /// 0/0/00: local catastrophic error of RDMAP.
    pub const fn rdmap_local() -> Self {
        Self {
            layer: 0,
            etype: 0,
            code: 0,
        }
    }

    /// 0/1: RDMAP remote protection error.
    pub const fn rdmap_protection(code: u8) -> Self {
        Self {
            layer: 0,
            etype: 1,
            code,
        }
    }

    /// 0/2: RDMAP remote operation error.
    pub const fn rdmap_operation(code: u8) -> Self {
        Self {
            layer: 0,
            etype: 2,
            code,
        }
    }

    /// 1/0/00: local catastrophic error of DDP; also an impossible segment size (D4, D13).
    pub const fn ddp_local() -> Self {
        Self {
            layer: 1,
            etype: 0,
            code: 0,
        }
    }

    /// 1/1: DDP tagged buffer error.
    pub const fn ddp_tagged(code: u8) -> Self {
        Self {
            layer: 1,
            etype: 1,
            code,
        }
    }

    /// 1/2: DDP untagged buffer error.
    pub const fn ddp_untagged(code: u8) -> Self {
        Self {
            layer: 1,
            etype: 2,
            code,
        }
    }

    /// 2/0: MPA error.
    pub const fn mpa(code: u8) -> Self {
        Self {
            layer: 2,
            etype: 0,
            code,
        }
    }

    /// 0 RDMAP, 1 DDP, 2 the layer below: MPA.
    pub const fn layer(self) -> u8 {
        self.layer
    }

    /// Error Type: its meaning depends on the layer.
    pub const fn etype(self) -> u8 {
        self.etype
    }

    /// Error Code: its meaning depends on layer and type.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// Byte 0 of Terminate Control.
    pub(super) const fn layer_etype(self) -> u8 {
        (self.layer << 4) | self.etype
    }

    /// The code if the sender swapped the two halves of byte 0.
    pub(super) const fn swapped(self) -> Self {
        Self {
            layer: self.etype,
            etype: self.layer,
            code: self.code,
        }
    }

    /// True if the RFCs assign a meaning to this code.
    pub const fn is_known(self) -> bool {
        self.meaning().is_some()
    }

    /// Meaning of the code, and the protocol that it concerns.
    const fn meaning(self) -> Option<(&'static str, &'static str)> {
        match (self.layer, self.etype) {
            (0, 0) => Some(("local catastrophic error", "RDMAP")), // any code (R5040-4.8-5)
            (0, 1) => within("RDMAP remote protection", rdmap_protection(self.code)),
            (0, 2) => within("RDMAP remote operation", rdmap_operation(self.code)),
            (1, 0) => within("DDP", ddp_local(self.code)),
            (1, 1) => within("DDP tagged buffer", ddp_tagged(self.code)),
            (1, 2) => within("DDP untagged buffer", ddp_untagged(self.code)),
            (2, 0) => within("MPA", mpa(self.code)),
            _ => None,
        }
    }
}

const fn within(
    place: &'static str,
    what: Option<&'static str>,
) -> Option<(&'static str, &'static str)> {
    match what {
        Some(what) => Some((what, place)),
        None => None,
    }
}

const fn rdmap_protection(code: u8) -> Option<&'static str> {
    Some(match code {
        0x00 => "invalid STag",
        0x01 => "base or bounds violation",
        0x02 => "access rights violation",
        0x03 => "STag not associated with the stream",
        0x04 => "TO wrap",
        0x09 => "STag cannot be invalidated",
        0xFF => "unspecified error",
        _ => return None,
    })
}

const fn rdmap_operation(code: u8) -> Option<&'static str> {
    Some(match code {
        0x05 => "invalid RDMAP version",
        0x06 => "unexpected opcode",
        0x07 => "catastrophic error of this stream",
        0x08 => "catastrophic error of all streams",
        0x09 => "STag cannot be invalidated",
        0xFF => "unspecified error",
        _ => return None,
    })
}

const fn ddp_local(code: u8) -> Option<&'static str> {
    match code {
        0x00 => Some("local catastrophic error or impossible segment size"),
        _ => None,
    }
}

const fn ddp_tagged(code: u8) -> Option<&'static str> {
    Some(match code {
        0x00 => "invalid STag",
        0x01 => "base or bounds violation",
        0x02 => "STag not associated with the stream, or access right missing",
        0x03 => "TO wrap",
        0x04 => "invalid DDP version",
        _ => return None,
    })
}

const fn ddp_untagged(code: u8) -> Option<&'static str> {
    Some(match code {
        0x01 => "invalid queue number",
        0x02 => "no buffer available",
        0x03 => "message sequence number out of range",
        0x04 => "invalid message offset",
        0x05 => "message too long for its buffer",
        0x06 => "invalid DDP version",
        _ => return None,
    })
}

const fn mpa(code: u8) -> Option<&'static str> {
    Some(match code {
        0x01 => "TCP connection closed, terminated or lost",
        0x02 => "CRC mismatch",
        0x03 => "marker and ULPDU_Length disagree",
        0x04 => "invalid Request or Reply Frame",
        0x05 => "local catastrophic error",
        0x06 => "insufficient IRD",
        0x07 => "no matching RTR",
        _ => return None,
    })
}

impl fmt::Display for TermCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}/{:x}/{:02x} ", self.layer, self.etype, self.code)?;
        match self.meaning() {
            Some((what, place)) => write!(f, "{what} ({place})"),
            None => write!(f, "unregistered code"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TermCode;

    #[test]
    fn codes_are_shown_with_their_meaning() {
        assert_eq!(
            TermCode::ddp_tagged(0).to_string(),
            "1/1/00 invalid STag (DDP tagged buffer)"
        );
        assert_eq!(TermCode::mpa(2).to_string(), "2/0/02 CRC mismatch (MPA)");
        assert_eq!(
            TermCode::UNSPECIFIED.to_string(),
            "0/2/ff unspecified error (RDMAP remote operation)"
        );
        assert_eq!(
            TermCode::rdmap_local().to_string(),
            "0/0/00 local catastrophic error (RDMAP)"
        );
        assert_eq!(
            TermCode::from_wire(0x23, 0x02).to_string(),
            "2/3/02 unregistered code"
        );
    }
}
