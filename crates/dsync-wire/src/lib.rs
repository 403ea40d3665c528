//! Messages, limits, codec, frame compression and the Link trait.
