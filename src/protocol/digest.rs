//! A digest of what a value hands to its serialiser: finer than JSON, which has one `null` for `None`,
//! `Some(())` and NaN. Pure.

use std::fmt::{self, Display};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::ser::{self, Serialize};

/// The digest of a value. Two values of one type that hand over the same have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    hash: u64,
    /// JSON writes the value as `null`.
    is_null: bool,
    /// JSON writes a part of the value as `null` although it isn't: a number that is not finite, or
    /// `Some` of what is `null`.
    pub(crate) is_lossy: bool,
}

impl Digest {
    /// Makes the digest of a value; `None` where the value refuses to be serialised.
    pub(crate) fn of<T: Serialize + ?Sized>(value: &T) -> Option<Self> {
        value.serialize(Digester).ok()
    }

    fn leaf(kind: &str, value: impl Hash) -> Self {
        Self {
            hash: hash(kind, value),
            is_null: false,
            is_lossy: false,
        }
    }

    fn null(kind: &str) -> Self {
        Self {
            is_null: true,
            ..Self::leaf(kind, ())
        }
    }

    fn float(kind: &str, bits: u64, is_finite: bool) -> Self {
        Self {
            is_null: !is_finite,
            is_lossy: !is_finite,
            ..Self::leaf(kind, bits)
        }
    }

    /// Puts a name, or the key of a map, around the value.
    fn under(self, kind: &str, name: impl Hash) -> Self {
        Self {
            hash: hash(kind, (name, self.hash)),
            ..self
        }
    }
}

fn hash(kind: &str, value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    kind.hash(&mut hasher);
    value.hash(&mut hasher);
    hasher.finish()
}

struct Digester;

/// Collects the parts of a list, a map or a structure. Their order doesn't count: that of a hash map
/// or a hash set is another one after each decoding, and JSON keeps that of a list.
struct Parts {
    variant: Option<&'static str>,
    sum: u64,
    count: u64,
    is_lossy: bool,
    key: Option<Digest>,
}

impl Parts {
    fn of(variant: Option<&'static str>) -> Self {
        Self {
            variant,
            sum: 0,
            count: 0,
            is_lossy: false,
            key: None,
        }
    }

    fn add(&mut self, part: Digest) {
        self.sum = self.sum.wrapping_add(part.hash);
        self.count += 1;
        self.is_lossy |= part.is_lossy;
    }

    fn done(self) -> Digest {
        let whole = Digest {
            is_lossy: self.is_lossy,
            ..Digest::leaf("parts", (self.sum, self.count))
        };
        match self.variant {
            Some(variant) => whole.under("variant", variant),
            None => whole,
        }
    }
}

type Digested = Result<Digest, fmt::Error>;

macro_rules! leaves {
    ($($name:ident($type:ty) = $kind:literal as $as:ty;)*) => {
        $(fn $name(self, value: $type) -> Digested {
            Ok(Digest::leaf($kind, <$as>::from(value)))
        })*
    };
}

macro_rules! compounds {
    ($($name:ident($($argument:tt: $type:ty),*) = $variant:expr;)*) => {
        $(fn $name(self, $($argument: $type),*) -> Result<Parts, fmt::Error> {
            Ok(Parts::of($variant))
        })*
    };
}

impl ser::Serializer for Digester {
    type Ok = Digest;
    type Error = fmt::Error;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Parts;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    leaves! {
        serialize_bool(bool) = "bool" as bool;
        serialize_i8(i8) = "signed" as i128;
        serialize_i16(i16) = "signed" as i128;
        serialize_i32(i32) = "signed" as i128;
        serialize_i64(i64) = "signed" as i128;
        serialize_i128(i128) = "signed" as i128;
        serialize_u8(u8) = "unsigned" as u128;
        serialize_u16(u16) = "unsigned" as u128;
        serialize_u32(u32) = "unsigned" as u128;
        serialize_u64(u64) = "unsigned" as u128;
        serialize_u128(u128) = "unsigned" as u128;
        serialize_char(char) = "char" as char;
    }

    fn serialize_f32(self, value: f32) -> Digested {
        Ok(Digest::float(
            "f32",
            value.to_bits().into(),
            value.is_finite(),
        ))
    }

    fn serialize_f64(self, value: f64) -> Digested {
        Ok(Digest::float("f64", value.to_bits(), value.is_finite()))
    }

    fn serialize_str(self, value: &str) -> Digested {
        Ok(Digest::leaf("text", value))
    }

    fn serialize_bytes(self, value: &[u8]) -> Digested {
        Ok(Digest::leaf("bytes", value))
    }

    fn serialize_none(self) -> Digested {
        Ok(Digest::null("none"))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Digested {
        let value = value.serialize(self)?;
        Ok(Digest {
            is_lossy: value.is_lossy || value.is_null,
            ..value.under("some", ())
        })
    }

    fn serialize_unit(self) -> Digested {
        Ok(Digest::null("unit"))
    }

    fn serialize_unit_struct(self, _: &'static str) -> Digested {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Digested {
        Ok(Digest::leaf("variant", variant))
    }

    fn serialize_newtype_struct<T>(self, _: &'static str, value: &T) -> Digested
    where
        T: Serialize + ?Sized,
    {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Digested
    where
        T: Serialize + ?Sized,
    {
        let value = value.serialize(self)?.under("variant", variant);
        Ok(Digest {
            is_null: false,
            ..value
        })
    }

    compounds! {
        serialize_seq(_: Option<usize>) = None;
        serialize_tuple(_: usize) = None;
        serialize_tuple_struct(_: &'static str, _: usize) = None;
        serialize_tuple_variant(_: &'static str, _: u32, variant: &'static str, _: usize) = Some(variant);
        serialize_map(_: Option<usize>) = None;
        serialize_struct(_: &'static str, _: usize) = None;
        serialize_struct_variant(_: &'static str, _: u32, variant: &'static str, _: usize) = Some(variant);
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Digested {
        self.serialize_str(&value.to_string())
    }
}

macro_rules! parts {
    ($($trait:ident::$add:ident($($name:ident)?);)*) => {
        $(impl ser::$trait for Parts {
            type Ok = Digest;
            type Error = fmt::Error;

            fn $add<T>(&mut self, $($name: &'static str,)? value: &T) -> Result<(), fmt::Error>
            where
                T: Serialize + ?Sized,
            {
                let part = value.serialize(Digester)?;
                $(let part = part.under("member", $name);)?
                self.add(part);
                Ok(())
            }

            fn end(self) -> Digested {
                Ok(self.done())
            }
        })*
    };
}

parts! {
    SerializeSeq::serialize_element();
    SerializeTuple::serialize_element();
    SerializeTupleStruct::serialize_field();
    SerializeTupleVariant::serialize_field();
    SerializeStruct::serialize_field(name);
    SerializeStructVariant::serialize_field(name);
}

impl ser::SerializeMap for Parts {
    type Ok = Digest;
    type Error = fmt::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), fmt::Error> {
        self.key = Some(key.serialize(Digester)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
        let key = self.key.take().map(|key| key.hash);
        self.add(value.serialize(Digester)?.under("member", key));
        Ok(())
    }

    fn end(self) -> Digested {
        Ok(self.done())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lossy(value: impl Serialize) -> bool {
        Digest::of(&value).unwrap().is_lossy
    }

    #[test]
    fn a_value_is_lossy_where_json_has_null_for_what_is_not() {
        assert!(is_lossy(f64::NAN));
        assert!(is_lossy(vec![1.0, f32::INFINITY]));
        assert!(is_lossy(Some(())));
        assert!(is_lossy([Some(Some(1)), Some(None)]));
        assert!(!is_lossy(1.5));
        assert!(!is_lossy(vec![Some(f64::MAX), None]));
        // JSON has `{"Ok":null}`.
        assert!(!is_lossy(Some(Ok::<(), ()>(()))));
    }
}
