//! Enums whose variants have a name in JSON and in messages.

/// Defines an enum from its variants and their names, with `ALL` and `as_str`.
macro_rules! named_enum {
    ($(#[$attribute:meta])* pub enum $enum:ident { $($(#[$of_variant:meta])* $variant:ident = $name:tt,)+ }) => {
        $(#[$attribute])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize, utoipa::ToSchema,
        )]
        pub enum $enum {
            $(
                $(#[$of_variant])*
                #[serde(rename = $name)]
                $variant,
            )+
        }

        impl $enum {
            /// Every value.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in JSON and in messages.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}
pub(crate) use named_enum;
