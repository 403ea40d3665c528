//! Access control lists and extended attributes.
//!
//! The law: whatever decodes is in order (names and numbers ascend strictly, permissions have three
//! bits). Two equal sets are therefore equal values, and nothing appears twice.

use super::{reader::Reader, writer::Writer};
use crate::{
    error::{DecodeError, EncodeError},
    limits::{MAX_ACL_NAMED, MAX_XATTR_NAME, MAX_XATTR_VALUE, MAX_XATTRS},
    message::{Acl, Extended, Xattr},
};

pub(super) fn encode(extended: &Extended, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let Extended { access, default, xattrs } = extended;
    w.flags(0, &[(ACCESS, access.is_some()), (DEFAULT, default.is_some())]);
    for acl in [access, default].into_iter().flatten() {
        encode_acl(acl, w)?;
    }
    w.count(xattrs.len(), MAX_XATTRS, "number of attributes")?;
    w.valid(xattrs.is_sorted_by(|a, b| a.name < b.name), "order of attributes")?;
    for Xattr { name, value } in xattrs {
        w.valid(valid_name(name), "name of an attribute")?;
        w.bytes(name, MAX_XATTR_NAME, "name of an attribute")?;
        w.bytes(value, MAX_XATTR_VALUE, "attribute")?;
    }
    Ok(())
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<Extended, DecodeError> {
    let flags = r.flags(ACCESS | DEFAULT, "flags")?;
    let access = if flags & ACCESS != 0 { Some(decode_acl(r)?) } else { None };
    let default = if flags & DEFAULT != 0 { Some(decode_acl(r)?) } else { None };
    let count = r.count(MAX_XATTRS, MIN_XATTR_LEN, "number of attributes")?;
    let mut xattrs: Vec<Xattr> = Vec::with_capacity(count);
    for _ in 0..count {
        let offset = r.offset();
        let name = r.bytes(MAX_XATTR_NAME, "name of an attribute")?;
        let ascends = xattrs.last().is_none_or(|last| last.name.as_slice() < name);
        if !valid_name(name) || !ascends {
            return Err(r.value(name.len() as u64, offset, "name of an attribute"));
        }
        let value = r.bytes(MAX_XATTR_VALUE, "attribute")?;
        xattrs.push(Xattr { name: name.to_vec(), value: value.to_vec() });
    }
    Ok(Extended { access, default, xattrs })
}

fn encode_acl(acl: &Acl, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let Acl { user, group, mask, other, users, groups } = acl;
    for permissions in [Some(*user), Some(*group), *mask, Some(*other)] {
        w.valid(permissions.is_none_or(|bits| bits <= 7), "permissions")?;
        w.byte(permissions.unwrap_or(NO_MASK));
    }
    for named in [users, groups] {
        w.count(named.len(), MAX_ACL_NAMED, "number of names in a list")?;
        w.valid(named.is_sorted_by(|(a, _), (b, _)| a < b), "order of names in a list")?;
        for &(id, permissions) in named {
            w.valid(permissions <= 7, "permissions")?;
            w.u32(id);
            w.byte(permissions);
        }
    }
    Ok(())
}

fn decode_acl(r: &mut Reader<'_>) -> Result<Acl, DecodeError> {
    let bits = |r: &mut Reader<'_>| r.flags(7, "permissions");
    Ok(Acl {
        user: bits(r)?,
        group: bits(r)?,
        mask: r.choice("mask", |byte| match byte {
            NO_MASK => Some(None),
            0..=7 => Some(Some(byte)),
            _ => None,
        })?,
        other: bits(r)?,
        users: decode_named(r)?,
        groups: decode_named(r)?,
    })
}

fn decode_named(r: &mut Reader<'_>) -> Result<Vec<(u32, u8)>, DecodeError> {
    let count = r.count(MAX_ACL_NAMED, MIN_NAMED_LEN, "number of names in a list")?;
    let mut named: Vec<(u32, u8)> = Vec::with_capacity(count);
    for _ in 0..count {
        let offset = r.offset();
        let id = r.u32("number in a list")?;
        if named.last().is_some_and(|&(last, _)| last >= id) {
            return Err(r.value(u64::from(id), offset, "number in a list"));
        }
        named.push((id, r.flags(7, "permissions")?));
    }
    Ok(named)
}

/// Returns whether an attribute's name is valid: at least one byte and no NUL, because it goes to
/// the kernel.
fn valid_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&0)
}

/// Bit of a set: it has an access list.
const ACCESS: u8 = 1;
/// Bit of a set: it has a default list for new entries.
const DEFAULT: u8 = 2;
/// The code for a list without a mask.
const NO_MASK: u8 = 8;
/// Smallest attribute: length of the name, one byte of name, length of the value.
const MIN_XATTR_LEN: usize = 3;
/// Smallest named user or group: number and permissions.
const MIN_NAMED_LEN: usize = 2;
