import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Ajv } from 'ajv';
import ajvFormats from 'ajv-formats';
import { Random } from '#test/harness/random.ts';
import { TextMatcher } from '../testing/schema-suite.ts';
import { FORMATS } from './json-schema-string.ts';

const SEED = 20261130;
const LABEL_63 = 'a'.repeat(63);

/** Texts of each format, and texts beside them, from the format's RFC. */
const VECTORS: Readonly<Record<string, readonly [valid: readonly string[], invalid: readonly string[]]>> = {
  date: [
    ['2024-02-29', '2000-02-29', '0000-02-29', '1985-04-12', '9999-12-31'],
    ['2023-02-29', '1900-02-29', '2024-04-31', '2024-13-01', '2024-00-10', '2024-1-01', '85-04-12', '2024-02-30'],
  ],
  time: [
    ['23:20:50.52Z', '00:00:00.123456789z', '23:59:60Z', '15:59:60-08:00', '01:29:60.5+01:30', '12:00:00-00:00'],
    ['24:00:00Z', '12:60:00Z', '22:59:60Z', '23:59:60+01:00', '12:00:00', '12:00:00+24:00', '12:00:00.Z', '1:00:00Z'],
  ],
  'date-time': [
    ['1985-04-12T23:20:50.52Z', '1990-12-31t15:59:60-08:00', '2024-02-29T00:00:00.000000001+05:30'],
    ['1985-04-12 23:20:50Z', '1985-04-12T23:20:50', '2023-02-29T00:00:00Z', '1990-12-31T15:59:60-07:00', '1985-04-12'],
  ],
  duration: [
    ['P4DT12H30M5S', 'P1Y2M3D', 'P4W', 'PT36H', 'P0D'],
    ['P', 'PT', 'P1YT', 'P2D1Y', '1D', 'P1W2D', 'P1Y3D'],
  ],
  uuid: [
    ['2EB8AA08-aa98-11ea-b4aa-73b441d16380', '00000000-0000-0000-0000-000000000000'],
    ['2eb8aa08-aa98-11ea-b4aa-73b441d1638', '2eb8aa08aa9811eab4aa73b441d16380', '2eb8aa08-aa98-11ea-b4aa-73b441d1638g'],
  ],
  ipv4: [
    ['0.0.0.0', '255.255.255.255', '192.168.0.1'],
    ['256.0.0.1', '1.2.3', '01.2.3.4', '1.2.3.4.5', '0x7f.0.0.1'],
  ],
  ipv6: [
    [
      '::',
      '::1',
      '1::',
      'fe80::1',
      '2001:DB8:0:0:8:800:200C:417A',
      '::ffff:192.168.0.1',
      '1:2:3:4:5:6:7::',
      '::2:3:4:5:6:7:8',
    ],
    [
      '1:2:3:4:5:6:7',
      '1::2::3',
      '12345::',
      ':1',
      '1:',
      '::ffff:256.0.0.1',
      'fe80::1%eth0',
      '1:2:3:4:5:6:7:8:9',
      '::1/64',
    ],
  ],
  hostname: [
    ['localhost', 'Example.COM', '1host', 'a-b.c', 'a--b.example', `${LABEL_63}.example`, 'ab.cd.ef.gh.ij.kl.mn'],
    ['', 'a..b', '-a', 'a-', 'a_b', 'example.', `${LABEL_63}a`, `${`${LABEL_63}.`.repeat(4)}com`, 'ab--c'],
  ],
  email: [
    [
      'ann.b.clark@example.com',
      'a+b@sub.example.co.uk',
      "o'neill@example.com",
      'Q@EXAMPLE.ORG',
      '"joe bloggs"@example.com',
      '"a\\"b@c"@example.com',
      'joe@[127.0.0.1]',
      'joe@[IPv6:::1]',
      `${'a'.repeat(64)}@example.com`,
      'a@localhost',
    ],
    [
      '2962',
      '.a@b.c',
      'a.@b.c',
      'a..b@c.d',
      'a b@c.d',
      'a@',
      '@b',
      'a@-b.c',
      `${'a'.repeat(65)}@example.com`,
      'a@b@c.d',
      'a@[1.2.3.256]',
    ],
  ],
  uri: [
    [
      'https://shop.example.com/item?id=42',
      'http://localhost:8086',
      'mailto:John.Doe@example.com',
      'urn:oasis:names:specification:docbook:dtd:xml:4.1.2',
      'file:///etc/hosts',
      'ldap://[2001:db8::7]/c=GB?objectClass?one',
      'tel:+1-816-555-1212',
      'news:comp.infosystems.www.servers.unix',
      'HTTP://user:pw@EXAMPLE.com:8042/over/there?name=ferret#nose',
      'http://a/b%20c/;p=1/(x)',
      'data:text/plain;base64,SGVsbG8=',
      'http://example.com?q#f/?',
    ],
    [
      '/abc',
      '//a/b',
      'abc',
      'http://a b',
      'http://a/%6G',
      '1http://a',
      'http://a:x/',
      'http://[::1',
      'http://a/<b>',
      'http://a/"',
      'http://a/é',
    ],
  ],
  'uri-reference': [
    ['', '/abc', '//a/b', 'abc', '#x', '?q', '../g;x=1', './a:b', 'http://a/b', 'a/b:c'],
    ['\\\\a', 'a b', '#a#b', '%2', 'http://a/é', '::'],
  ],
  'json-pointer': [
    ['', '/', '/a~1b/c~0', '/foo/0', '/é "x'],
    ['a', '/~', '/~2', '#/a'],
  ],
};

describe('the formats of strings', () => {
  const texts = new TextMatcher();
  const matchers = new Map(
    [...FORMATS.keys()].map((format) => {
      const compiled = texts.compile({ type: 'string', format });
      assert.ok(!('refusal' in compiled), format);
      return [format, (text: string) => compiled.accepts(JSON.stringify(text))] as const;
    }),
  );
  const has = (format: string, text: string): boolean => matchers.get(format)?.(text) ?? false;

  for (const format of FORMATS.keys()) {
    it(`are those of their standards: ${format}`, () => {
      const [valid = [], invalid = []] = VECTORS[format] ?? [];
      assert.ok(valid.length > 0 && invalid.length > 0);
      for (const text of valid) assert.ok(has(format, text), `${text} must match`);
      for (const text of invalid) assert.ok(!has(format, text), `${text} must not match`);
    });
  }

  it(`agree with ajv-formats on texts near valid ones, seed ${SEED}`, () => {
    const ajv = new Ajv();
    ajvFormats.default(ajv);
    const random = new Random(SEED);
    // ajv-formats takes a space for the T of RFC 3339, hours before seconds, and reserved labels; it takes no quoted local parts and no literals.
    const compared = ['date', 'time', 'uuid', 'ipv4', 'ipv6', 'uri', 'json-pointer'];
    const alphabet = [...'0123456789abzTZt:.-+/?#%@[]~"é '];
    for (const format of compared) {
      const validate = ajv.compile({ type: 'string', format });
      for (const seed of VECTORS[format]?.flat() ?? []) {
        for (let index = 0; index < 40; index += 1) {
          const at = random.integer(0, seed.length);
          const removed = random.integer(0, 1);
          const text = seed.slice(0, at) + (random.chance(0.8) ? random.pick(alphabet) : '') + seed.slice(at + removed);
          // It also takes paths that begin with two slashes, which look like an authority with a wrong port.
          const isMeant = format !== 'uri' || !/^[^/?#]+:\/\//.test(text) || has(format, text);
          if (isMeant) assert.equal(has(format, text), validate(text), `${format}: ${JSON.stringify(text)}`);
        }
      }
    }
  });

  it('end: fractions of a second and numbers of a duration have at most 20 digits', () => {
    for (const [format, textOf] of [
      ['time', (digits) => `12:00:00.${digits}Z`],
      ['time', (digits) => `22:59:60.${digits}-01:00`],
      ['date-time', (digits) => `2024-02-29T12:00:00.${digits}Z`],
      ['duration', (digits) => `P${digits}Y`],
      ['duration', (digits) => `P1Y2M3DT4H5M${digits}S`],
    ] as [string, (digits: string) => string][]) {
      assert.ok(has(format, textOf('1'.repeat(20))), textOf('20'));
      assert.ok(!has(format, textOf('1'.repeat(21))), textOf('21'));
    }
  });

  it('hold beside other rules of the same string', () => {
    const accepts = (schema: object, text: string): boolean => {
      const compiled = texts.compile({ type: 'string', ...schema });
      assert.ok(!('refusal' in compiled), JSON.stringify(compiled));
      return compiled.accepts(JSON.stringify(text));
    };
    assert.ok(accepts({ format: 'email', maxLength: 255, minLength: 3 }, 'a@b.c'));
    assert.ok(!accepts({ format: 'email', maxLength: 10 }, 'ann@example.com'));
    assert.ok(accepts({ format: 'uri', pattern: '^https:' }, 'https://a.example?x=1'));
    assert.ok(!accepts({ format: 'uri', pattern: '^https:' }, 'http://a.example'));
    assert.ok(accepts({ format: 'date', not: { const: '2024-02-29' } }, '2024-02-28'));
    assert.ok(!accepts({ format: 'date', not: { const: '2024-02-29' } }, '2024-02-29'));
    assert.ok(!accepts({ format: 'hostname' }, `${'a.'.repeat(126)}bcd`));
  });

  it('are annotations when no standard of JSON Schema defines them, or when they need tables', () => {
    for (const format of [
      'color',
      'byte',
      'int32',
      'regex',
      'iri',
      'idn-hostname',
      'uri-template',
      'starts_with',
      'topic',
    ]) {
      // With uniqueItems, whole texts are checked, too.
      const schema = { type: 'array', items: { type: 'string', format }, uniqueItems: true };
      const compiled = texts.compile(schema);
      assert.ok(!('refusal' in compiled), format);
      assert.ok(compiled.accepts('["(", "any text"]'), format);
      assert.ok(!compiled.accepts('["a", "a"]'), format);
    }
  });
});
