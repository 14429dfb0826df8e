/// A JSON value. Numbers are `f64`, as in JavaScript: integers are exact up to 2^53.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    /// Members, in the order of the text.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a text. Values may be nested 128 deep.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(128)?;
        parser.space();
        if parser.at == text.len() { Ok(value) } else { Err(parser.wrong()) }
    }

    /// A member of an object; `Null` when it is absent. Of several members with this name, the last one counts, as in JavaScript: the platform
    /// has checked the last one against the function's schema.
    pub fn get(&self, name: &str) -> &Json {
        match self {
            Json::Object(members) => members.iter().rev().find(|(key, _)| key == name).map_or(&Json::Null, |(_, value)| value),
            _ => &Json::Null,
        }
    }
    pub fn as_str(&self) -> Option<&str> {
        if let Json::Text(text) = self { Some(text) } else { None }
    }
    pub fn as_f64(&self) -> Option<f64> {
        if let Json::Number(number) = self { Some(*number) } else { None }
    }
    /// The number without its fraction, limited to the range 0 to 4294967295.
    pub fn as_u32(&self) -> Option<u32> {
        self.as_f64().map(|number| number as u32)
    }
    pub fn as_bool(&self) -> Option<bool> {
        if let Json::Bool(value) = self { Some(*value) } else { None }
    }
    pub fn as_list(&self) -> Option<&[Json]> {
        if let Json::List(items) = self { Some(items) } else { None }
    }
    pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
        Json::Object(members.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }
}

macro_rules! json_from {
    ($($type:ty, $value:pat => $json:expr;)*) => {$(
        impl From<$type> for Json {
            fn from($value: $type) -> Json {
                $json
            }
        }
    )*};
}
json_from! {
    bool, value => Json::Bool(value);
    u32, value => Json::Number(value as f64);
    f64, value => Json::Number(value);
    &str, value => Json::Text(value.to_string());
    String, value => Json::Text(value);
}
impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(items: Vec<T>) -> Json {
        Json::List(items.into_iter().map(Into::into).collect())
    }
}

impl abi::Input for Json {
    fn parse(text: String) -> Result<Self, String> {
        Json::parse(&text)
    }
}

impl std::fmt::Display for Json {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write;
        match self {
            Json::Null => to.write_str("null"),
            Json::Bool(value) => write!(to, "{value}"),
            Json::Number(number) if number.is_finite() => write!(to, "{number}"),
            Json::Number(_) => to.write_str("null"),
            Json::Text(text) => write_text(text, to),
            Json::List(items) => {
                to.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    write!(to, "{}{item}", if index > 0 { "," } else { "" })?;
                }
                to.write_char(']')
            }
            Json::Object(members) => {
                to.write_char('{')?;
                for (index, (name, value)) in members.iter().enumerate() {
                    to.write_str(if index > 0 { "," } else { "" })?;
                    write_text(name, to)?;
                    write!(to, ":{value}")?;
                }
                to.write_char('}')
            }
        }
    }
}

fn write_text(text: &str, to: &mut impl std::fmt::Write) -> std::fmt::Result {
    to.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => to.write_str("\\\"")?,
            '\\' => to.write_str("\\\\")?,
            '\n' => to.write_str("\\n")?,
            '\0'..='\x1f' => write!(to, "\\u{:04x}", character as u32)?,
            _ => to.write_char(character)?,
        }
    }
    to.write_char('"')
}

/// True for a number as JSON writes it. Rust's `parse` also takes other forms, such as `.5`, `1.` and `01`.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(first, rest)| (first, Some(rest)));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(first, rest)| (first, Some(rest)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.map_or(true, digits)
        && exponent.map_or(true, |part| digits(part.strip_prefix(['+', '-']).unwrap_or(part)))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn wrong(&self) -> String {
        format!("The text is not JSON at byte {}.", self.at)
    }
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }
    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }
    fn take(&mut self, token: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(token.as_bytes());
        if found {
            self.at += token.len();
        }
        found
    }
    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(self.wrong()) }
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        self.space();
        match self.peek() {
            _ if depth == 0 => Err(self.wrong()),
            b'{' => self.members("}", |parser| {
                parser.space();
                let name = parser.string()?;
                parser.space();
                parser.expect(":")?;
                Ok((name, parser.value(depth - 1)?))
            }).map(Json::Object),
            b'[' => self.members("]", |parser| parser.value(depth - 1)).map(Json::List),
            b'"' => self.string().map(Json::Text),
            b't' => self.expect("true").map(|_| Json::Bool(true)),
            b'f' => self.expect("false").map(|_| Json::Bool(false)),
            b'n' => self.expect("null").map(|_| Json::Null),
            _ => {
                let rest = &self.text.as_bytes()[self.at..];
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                let text = &self.text[self.at..self.at + length];
                if !is_number(text) {
                    return Err(self.wrong());
                }
                let number = text.parse().map_err(|_| self.wrong())?;
                self.at += length;
                Ok(Json::Number(number))
            }
        }
    }

    fn members<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> Result<T, String>) -> Result<Vec<T>, String> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.take(end) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            self.space();
            if self.take(end) {
                return Ok(items);
            }
            self.expect(",")?;
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect("\"")?;
        let mut said = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').ok_or_else(|| self.wrong())?;
            said.push_str(&rest[..plain]);
            self.at += plain;
            if self.take("\"") {
                return Ok(said);
            }
            self.expect("\\")?;
            said.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => letter as char,
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\x08',
            b'f' => '\x0c',
            b'u' => {
                let first = self.hex()?;
                let is_pair = (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u");
                let at = self.at;
                if is_pair {
                    self.at += 2;
                    let second = self.hex()?;
                    if (0xdc00..0xe000).contains(&second) {
                        let point = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                        return Ok(char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    self.at = at;
                }
                char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => {
                self.at -= 1;
                return Err(self.wrong());
            }
        })
    }

    fn hex(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or_else(|| self.wrong())?;
        self.at += 4;
        Ok(value)
    }
}
