import { type TypeNames, typeText } from '../emit-host.ts';
import {
  type CaseType,
  type CoreType,
  casesOf,
  discriminantSize,
  flatten,
  hasCases,
  joinCases,
  layoutOf,
  payloadOffset,
  sequence,
} from '../layout.ts';
import type { WitType } from '../model.ts';

/**
 * Lists of numbers that are lifted as one typed array, by the kind of their elements. `lift` and `put` name the methods of `LoweredGuest` that lift
 * and write such a list. `put` is null for a list that the generated code writes element by element.
 */
const TYPED_LISTS: Partial<Record<WitType['kind'], { readonly lift: string; readonly put: string | null }>> = {
  u8: { lift: 'listU8', put: 'putU8' },
  u16: { lift: 'listU16', put: null },
  u32: { lift: 'listU32', put: 'putU32' },
  s32: { lift: 'listS32', put: 'putU32' },
  f32: { lift: 'listF32', put: 'putF32' },
  f64: { lift: 'listF64', put: null },
  u64: { lift: 'listU64', put: null },
};

/** Index of a resource type in the world. A handle carries the index of its type (`LoweredGuest.addResource`). */
export type ResourceIndex = (interfaceName: string, resource: string) => number;

/**
 * Form of a helper function, by its use: `load` reads a value from memory, `store` writes a value to memory, `lift`
 * makes a value from core values, and `list` reads a list of values from memory.
 */
type HelperForm = 'load' | 'store' | 'lift' | 'list';

/**
 * Writes TypeScript that moves values of WIT types between a guest's memory and JavaScript: straight-line code with constant offsets
 * (Component Model, Canonical ABI, "Loading", "Storing", "Lifting"). In this code, `g` is the `LoweredGuest`, and `F` the array of the world's future
 * types (`LoweredFuture`). Addresses are unsigned, and the caller has checked their ranges. Each composite type gets one helper function for each
 * form in which it crosses.
 */
export class Emitter {
  readonly #resources: ResourceIndex;
  readonly #types: TypeNames;
  readonly #helpers: string[] = [];
  /** Names of the helpers, by type and form. The helpers of `#caseIndex` have the form `cases`. */
  readonly #names = new Map<WitType, Map<string, string>>();
  readonly #futures: WitType[] = [];

  /** `types` names the declared types in TypeScript. */
  constructor(resources: ResourceIndex, types: TypeNames = new Map()) {
    this.#resources = resources;
    this.#types = types;
  }

  /** A type as TypeScript. */
  text(type: WitType | null): string {
    return typeText(type, this.#types);
  }

  /** Source of every helper made so far. */
  get helpers(): string {
    return this.#helpers.join('\n');
  }

  /** Payload types of the futures seen so far. The index of each is its index in `F`. */
  get futures(): readonly WitType[] {
    return this.#futures;
  }

  /** Index in `F` of the futures with this payload type; equal types share one. */
  future(payload: WitType): number {
    const key = shape(payload);
    let index = this.#futures.findIndex((other) => shape(other) === key);
    if (index < 0) index = this.#futures.push(payload) - 1;
    return index;
  }

  /** Expression of the value at `address`, which is the text of an identifier or a sum. */
  load(type: WitType, address: string): string {
    switch (type.kind) {
      case 'bool':
        return `(g.u8[${address}] !== 0)`;
      case 'u8':
        return `g.u8[${address}]`;
      case 's8':
        return `(g.u8[${address}] << 24 >> 24)`;
      case 'u16':
        return `g.u16[(${address}) >>> 1]`;
      case 's16':
        return `(g.u16[(${address}) >>> 1] << 16 >> 16)`;
      case 'u32':
        return `g.u32[(${address}) >>> 2]`;
      case 's32':
        return `g.i32[(${address}) >>> 2]`;
      case 'u64':
        return `g.u64[(${address}) >>> 3]`;
      case 's64':
        return `BigInt.asIntN(64, g.u64[(${address}) >>> 3])`;
      case 'f32':
        return `g.f32[(${address}) >>> 2]`;
      case 'f64':
        return `g.f64[(${address}) >>> 3]`;
      case 'char':
        return `g.char(g.u32[(${address}) >>> 2])`;
      case 'string':
        return `g.string(g.u32[(${address}) >>> 2], g.u32[(${address} + 4) >>> 2])`;
      case 'list':
        return this.#liftList(type.element, `g.u32[(${address}) >>> 2]`, `g.u32[(${address} + 4) >>> 2]`);
      case 'own':
      case 'borrow':
        return this.#liftHandle(type, `g.u32[(${address}) >>> 2]`);
      case 'future':
        throw new TypeError('an inferlet cannot hand a future to the host');
      default:
        return `${this.#helper('load', type)}(g, ${address})`;
    }
  }

  /** Statement that writes the value of the expression `value` to `address`. */
  store(type: WitType, address: string, value: string): string {
    switch (type.kind) {
      case 'bool':
        return `g.u8[${address}] = ${value} ? 1 : 0;`;
      case 'u8':
      case 's8':
        return `g.u8[${address}] = ${value};`;
      case 'u16':
      case 's16':
        return `g.u16[(${address}) >>> 1] = ${value};`;
      case 'u32':
      case 's32':
        return `g.u32[(${address}) >>> 2] = ${value};`;
      case 'u64':
      case 's64':
        return `g.u64[(${address}) >>> 3] = BigInt(${value});`;
      case 'f32':
        return `g.f32[(${address}) >>> 2] = ${value};`;
      case 'f64':
        return `g.f64[(${address}) >>> 3] = ${value};`;
      case 'char':
        return `g.u32[(${address}) >>> 2] = ${value}.codePointAt(0);`;
      case 'string':
        return `g.putString(${address}, ${value});`;
      case 'own':
        return `g.u32[(${address}) >>> 2] = g.addResource(${this.#resources(type.interface, type.resource)}, ${value});`;
      case 'borrow':
        throw new TypeError('the host lends nothing to an inferlet');
      case 'future': {
        if (type.value === null) throw new TypeError('a future without a value is not used by the contract');
        return `g.u32[(${address}) >>> 2] = g.addFuture(${value}, F[${this.future(type.value)}]);`;
      }
      case 'list': {
        const put = TYPED_LISTS[type.element.kind]?.put;
        return put ? `g.${put}(${address}, ${value});` : `${this.#helper('store', type)}(g, ${address}, ${value});`;
      }
      default:
        return `${this.#helper('store', type)}(g, ${address}, ${value});`;
    }
  }

  /** Expression of a value that is passed as core values; `flat` has their names. */
  lift(type: WitType, flat: readonly string[]): string {
    const [first = '', second = ''] = flat;
    switch (type.kind) {
      case 'bool':
        return `(${first} !== 0)`;
      case 'u8':
        return `(${first} & 255)`;
      case 's8':
        return `(${first} << 24 >> 24)`;
      case 'u16':
        return `(${first} & 65535)`;
      case 's16':
        return `(${first} << 16 >> 16)`;
      case 'u32':
        return `(${first} >>> 0)`;
      case 'u64':
        return `BigInt.asUintN(64, ${first})`;
      case 's32':
      case 's64':
      case 'f32':
      case 'f64':
        return first;
      case 'char':
        return `g.char(${first})`;
      case 'string':
        return `g.string(${first}, ${second})`;
      case 'list':
        return this.#liftList(type.element, first, second);
      case 'own':
      case 'borrow':
        return this.#liftHandle(type, first);
      case 'future':
        throw new TypeError('an inferlet cannot hand a future to the host');
      default:
        return `${this.#helper('lift', type)}(g, ${flat.join(', ')})`;
    }
  }

  /** Expression of the single core value that returns `value` to the guest. */
  lowerFlat(type: WitType, value: string): string {
    switch (type.kind) {
      case 'bool':
        return `(${value} ? 1 : 0)`;
      case 'u64':
      case 's64':
        return `BigInt.asIntN(64, BigInt(${value}))`;
      case 'char':
        return `${value}.codePointAt(0)`;
      case 'enum':
        return `${this.#caseIndex(type)}(${value})`;
      case 'own':
        return `g.addResource(${this.#resources(type.interface, type.resource)}, ${value})`;
      case 'future':
        if (type.value === null) throw new TypeError('a future without a value is not used by the contract');
        return `g.addFuture(${value}, F[${this.future(type.value)}])`;
      case 'record':
      case 'tuple':
      case 'variant':
      case 'option':
      case 'result':
      case 'list':
      case 'string':
      case 'borrow':
        throw new TypeError(`${type.kind} is not returned as one core value`);
      default:
        return value;
    }
  }

  #liftHandle(type: Extract<WitType, { kind: 'own' | 'borrow' }>, handle: string): string {
    const method = type.kind === 'own' ? 'takeResource' : 'resource';
    return `(g.${method}(${handle}, ${this.#resources(type.interface, type.resource)}) as ${this.text(type)})`;
  }

  #liftList(element: WitType, pointer: string, length: string): string {
    const typed = TYPED_LISTS[element.kind];
    if (typed) return `g.${typed.lift}(${pointer}, ${length})`;
    return `${this.#helper('list', element)}(g, ${pointer}, ${length})`;
  }

  #helper(form: HelperForm, type: WitType): string {
    let forms = this.#names.get(type);
    if (!forms) {
      forms = new Map();
      this.#names.set(type, forms);
    }
    const known = forms.get(form);
    if (known) return known;
    const name = `${form}${this.#helpers.length}`;
    forms.set(form, name);
    // The helper takes its place in the list before its source is made, because the source may need further helpers.
    const slot = this.#helpers.push('') - 1;
    this.#helpers[slot] = this.#helperSource(form, name, type);
    return name;
  }

  #helperSource(form: HelperForm, name: string, type: WitType): string {
    const value = this.text(type);
    if (form === 'list') {
      const { size, align } = layoutOf(type);
      return [
        `function ${name}(g: LoweredGuest, p: number, n: number): ${this.text({ kind: 'list', element: type })} {`,
        '  n >>>= 0;',
        `  const a = g.items(p, n, ${size}, ${align});`,
        `  const v: ${parenthesized(value)}[] = new Array(n);`,
        '  for (let i = 0; i < n; i++) {',
        `    const e = a + i * ${size};`,
        `    v[i] = ${this.load(type, 'e')};`,
        '  }',
        '  return v;',
        '}',
      ].join('\n');
    }
    if (form === 'store') {
      return `function ${name}(g: LoweredGuest, p: number, v: ${value}): void {\n${indented(this.#storeBody(type))}\n}`;
    }
    if (form === 'load') {
      return `function ${name}(g: LoweredGuest, p: number): ${value} {\n${indented(this.#loadBody(type))}\n}`;
    }
    const types = flatten(type);
    const flat = types.map((_, index) => `f${index}`);
    const params = types.map((core, index) => `f${index}: ${core === 'i64' ? 'bigint' : 'number'}`);
    const body = indented(this.#liftBody(type, flat));
    // TypeScript refuses an unused parameter without the underscore.
    const guest = /\bg\b/.test(body) ? 'g' : '_g';
    return `function ${name}(${[`${guest}: LoweredGuest`, ...params].join(', ')}): ${value} {\n${body}\n}`;
  }

  #loadBody(type: WitType): string {
    if (type.kind === 'record') {
      const { offsets } = sequence(type.fields.map((field) => field.type));
      return object(type.fields.map((field, i) => `${field.js}: ${this.load(field.type, `p + ${offsets[i]}`)}`));
    }
    if (type.kind === 'tuple') {
      const { offsets } = sequence(type.items);
      return array(type.items.map((item, i) => this.load(item, `p + ${offsets[i]}`)));
    }
    if (!hasCases(type)) throw new TypeError(`no load of ${type.kind}`);
    const view = { 1: 'g.u8[p]', 2: 'g.u16[p >>> 1]', 4: 'g.u32[p >>> 2]' }[discriminantSize(casesOf(type).length)];
    const at = `p + ${payloadOffset(type)}`;
    return this.#switchOf(type, view, (payload) => this.load(payload, at));
  }

  #liftBody(type: WitType, flat: readonly string[]): string {
    if (type.kind === 'record' || type.kind === 'tuple') {
      let at = 0;
      const members = type.kind === 'record' ? type.fields.map((field) => field.type) : type.items;
      const values = members.map((member) => {
        const count = flatten(member).length;
        at += count;
        return this.lift(member, flat.slice(at - count, at));
      });
      return type.kind === 'record'
        ? object(type.fields.map((field, i) => `${field.js}: ${values[i]}`))
        : array(values);
    }
    if (!hasCases(type)) throw new TypeError(`no lift of ${type.kind}`);
    const joined = joinCases(casesOf(type));
    const payloads = flat.slice(1);
    return this.#switchOf(type, `${flat[0]} >>> 0`, (payload) =>
      this.lift(
        payload,
        flatten(payload).map((want, i) => coerce(payloads[i] ?? '', joined[i] ?? want, want)),
      ),
    );
  }

  #storeBody(type: WitType): string {
    if (type.kind === 'record') {
      const { offsets } = sequence(type.fields.map((field) => field.type));
      return type.fields.map((field, i) => this.store(field.type, `p + ${offsets[i]}`, `v.${field.js}`)).join('\n');
    }
    if (type.kind === 'tuple') {
      const { offsets } = sequence(type.items);
      return type.items.map((item, i) => this.store(item, `p + ${offsets[i]}`, `v[${i}]`)).join('\n');
    }
    if (type.kind === 'list') {
      const { size, align } = layoutOf(type.element);
      return [
        'const n = v.length;',
        `const a = g.alloc(n * ${size}, ${align});`,
        'g.u32[p >>> 2] = a;',
        'g.u32[(p >>> 2) + 1] = n;',
        'for (let i = 0; i < n; i++) {',
        `  const e = a + i * ${size};`,
        `  ${this.store(type.element, 'e', `(v[i] as ${this.text(type.element)})`)}`,
        '}',
      ].join('\n');
    }
    if (!hasCases(type)) throw new TypeError(`no store of ${type.kind}`);
    const cases = casesOf(type);
    const size = discriminantSize(cases.length);
    const setIndex = (index: string) =>
      ({ 1: `g.u8[p] = ${index};`, 2: `g.u16[p >>> 1] = ${index};`, 4: `g.u32[p >>> 2] = ${index};` })[size];
    const at = `p + ${payloadOffset(type)}`;
    if (type.kind === 'enum') return setIndex(`${this.#caseIndex(type)}(v)`);
    if (type.kind === 'option' && !isOption(type.value)) {
      return [
        `if (v === undefined) ${setIndex('0')}`,
        `else {`,
        `  ${setIndex('1')}`,
        `  ${this.store(type.value, at, 'v')}`,
        '}',
      ].join('\n');
    }
    const names = caseNames(type);
    const branches = cases.map(
      (payload, i) =>
        `  case ${quoted(names[i])}: ${setIndex(String(i))} ${payload ? `${this.store(payload, at, 'v.val')} ` : ''}return;`,
    );
    return ['switch (v.tag) {', ...branches, "  default: throw new TypeError('a value without a case');", '}'].join(
      '\n',
    );
  }

  /** Name of a helper that takes the name of a case and returns its discriminant. */
  #caseIndex(type: Extract<WitType, { kind: 'enum' }>): string {
    const forms = this.#names.get(type) ?? new Map<string, string>();
    this.#names.set(type, forms);
    const known = forms.get('cases');
    if (known) return known;
    const name = `case${this.#helpers.length}`;
    forms.set('cases', name);
    const branches = type.cases.map((entry, i) => `    case ${quoted(entry.name)}: return ${i};`);
    const head = `function ${name}(v: ${this.text(type)}): number {\n  switch (v) {`;
    this.#helpers.push(
      [head, ...branches, "    default: throw new TypeError('a value without a case');", '  }', '}'].join('\n'),
    );
    return name;
  }

  /**
   * Source that returns the JavaScript value for a discriminant: the name of an enum's case, an option's value or
   * `undefined`, else `{ tag, val }`.
   */
  #switchOf(type: CaseType, discriminant: string, payloadOf: (payload: WitType) => string): string {
    const names = caseNames(type);
    const branches = casesOf(type).map((payload, i) => {
      if (type.kind === 'enum') return `  case ${i}: return ${quoted(names[i])};`;
      if (type.kind === 'option' && !isOption(type.value)) {
        return `  case ${i}: return ${payload ? payloadOf(payload) : 'undefined'};`;
      }
      const tag = `tag: ${quoted(names[i])}`;
      if (payload) return `  case ${i}: return { ${tag}, val: ${payloadOf(payload)} };`;
      // The type of a result, `Outcome`, requires `val`. A case without a payload has no `val`, hence the `as`.
      return `  case ${i}: return { ${tag} }${type.kind === 'result' ? ` as ${this.text(type)}` : ''};`;
    });
    const label = 'name' in type ? type.name : type.kind;
    const refuse = `  default: return g.trap(\`\${d} is no case of ${label}\`);`;
    return [`const d = ${discriminant};`, 'switch (d) {', ...branches, refuse, '}'].join('\n');
  }
}

const quoted = (text = ''): string => `'${text}'`;
const parenthesized = (text: string): string => (text.includes(' ') ? `(${text})` : text);
/** Indents each line of a text by two spaces, except empty lines. */
export const indented = (text: string): string => text.replace(/^(?=.)/gm, '  ');
const object = (members: readonly string[]): string =>
  ['return {', ...members.map((member) => `  ${member},`), '};'].join('\n');
const array = (members: readonly string[]): string =>
  ['return [', ...members.map((member) => `  ${member},`), '];'].join('\n');

/** In JavaScript, an option of another option is `{ tag, val }`: `undefined` could not tell which of the two is empty. */
const isOption = (type: WitType): boolean => type.kind === 'option';

function caseNames(type: CaseType): readonly string[] {
  if (type.kind === 'option') return ['none', 'some'];
  if (type.kind === 'result') return ['ok', 'err'];
  return type.cases.map((entry) => entry.name);
}

/** Converts a value from the core type that fits all cases (`joinCases`) to that of one case. emit-lowering.ts defines `f32of` and `f64of`. */
function coerce(value: string, have: CoreType, want: CoreType): string {
  if (have === want) return value;
  if (have === 'i32' && want === 'f32') return `f32of(${value})`;
  if (have === 'i64' && want === 'i32') return `Number(BigInt.asIntN(32, ${value}))`;
  if (have === 'i64' && want === 'f32') return `f32of(Number(BigInt.asIntN(32, ${value})))`;
  if (have === 'i64' && want === 'f64') return `f64of(${value})`;
  throw new TypeError(`no coercion of ${have} to ${want}`);
}

/** Text of the structure of a type, without its documentation: equal texts are equal types. */
function shape(type: WitType | null): string {
  return JSON.stringify(type, (key, value: unknown) => (key === 'docs' ? undefined : value));
}
