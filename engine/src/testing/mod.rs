//! Tools that drivers inside and outside this workspace test themselves with.
