# Makes module parameters of the constants of the kernel's siw driver (siw_main.c, siw.h, siw_cm.c), with the same names and
# defaults; nothing else is changed. `rtr_offer` (1: RDMA Write, 2: RDMA Read, 3: both) takes the place of `rtr_type`.
s/^const bool (zcopy_tx|try_gso|mpa_crc_required|mpa_crc_strict|siw_tcp_nagle|peer_to_peer)\b([^;]*);/bool \1\2;\nmodule_param(\1, bool, 0644);/
s/^extern const bool (zcopy_tx|try_gso|mpa_crc_required|mpa_crc_strict|siw_tcp_nagle|peer_to_peer);/extern bool \1;/
s/^u_char mpa_version\b([^;]*);/u_char mpa_version\1;\nmodule_param(mpa_version, byte, 0644);/
s/^static const bool relaxed_ird_negotiation\b([^;]*);/static bool relaxed_ird_negotiation\1;\nmodule_param(relaxed_ird_negotiation, bool, 0644);/
s/^static __be16 rtr_type\b[^;]*;/static unsigned int rtr_offer = 3;\nmodule_param(rtr_offer, uint, 0644);/
s/ord \|= rtr_type;/ord |= (rtr_offer \& 1 ? MPA_V2_RDMA_WRITE_RTR : 0) | (rtr_offer \& 2 ? MPA_V2_RDMA_READ_RTR : 0);/
