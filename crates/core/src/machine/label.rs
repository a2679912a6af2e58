//! Enums whose variants are values of labels: in metrics, in logs, in headers.

/// `Variant = "value",` with its description for documents. `.. Variant(Inner)` delegates to
/// `Inner`.
macro_rules! labels {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $($(#[doc = $words:literal])* $variant:ident = $value:literal,)+
            $(.. $(#[doc = $other_words:literal])* $other:ident($inner:ty),)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[doc = $words])* $variant,)+
            $($(#[doc = $other_words])* $other($inner),)?
        }

        impl $name {
            pub const ALL: [$name; [$(stringify!($variant)),+].len()] = [$($name::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $value,)+
                    $($name::$other(inner) => inner.as_str(),)?
                }
            }

            pub fn words(self) -> &'static str {
                match self {
                    $($name::$variant => concat!($($words),*).trim_ascii(),)+
                    $($name::$other(inner) => inner.words(),)?
                }
            }
        }
    };
}
