//! The source's messages on their way from the inbox to the planner.

use std::sync::Arc;

use dsync_wire::{
    budget::Held,
    message::{IdName, Listing, ListingEnd, Same, Span, Tops},
    name::Name,
};

/// A message of the source's listing, as the inbox passes it on.
pub(super) enum Listed {
    Tops(Tops),
    Missing(Vec<Name>),
    IdName(IdName),
    /// With what its attribute sets take.
    Listing(Listing, Option<Arc<Held>>),
    Span(Span),
    Same(Same),
    End(ListingEnd),
}

/// A message that waits for the planner, and its memory until it is planned.
pub(super) struct Waiting {
    pub(super) message: Listed,
    pub(super) _held: Held,
}
