import { camelCase, type NamedType, pascalCase, type WitType } from './model.ts';

const NUMBER_KINDS: ReadonlySet<string> = new Set(['u8', 's8', 'u16', 's16', 'u32', 's32', 'u64', 's64', 'f32', 'f64']);

/** Bytes of the types with a fixed size of more than one byte. */
const BYTES: Readonly<Record<string, number>> = {
  u16: 2,
  s16: 2,
  u32: 4,
  s32: 4,
  f32: 4,
  char: 4,
  u64: 8,
  s64: 8,
  f64: 8,
};

/** Name of a declared type in generated functions, unique in the package: `StoreEntry`. */
export const codecName = (type: NamedType): string => pascalCase(type.interface) + type.js;

/** Number of a resource type by its interface and name: its index in `CHANNEL_RESOURCES`. */
export type ResourceNumber = (interfaceName: string, resource: string) => number;

/** Minimum bytes of a value of a type. With this number the reader refuses a list whose elements cannot fit into the remaining bytes. */
function minBytes(type: WitType): number {
  switch (type.kind) {
    case 'string':
    case 'list':
    case 'own':
    case 'borrow':
      return 4;
    case 'record':
      return type.fields.reduce((sum, field) => sum + minBytes(field.type), 0);
    case 'tuple':
      return type.items.reduce((sum, item) => sum + minBytes(item), 0);
    case 'result':
      return 1 + Math.min(type.ok ? minBytes(type.ok) : 0, type.err ? minBytes(type.err) : 0);
    case 'variant':
      return 1 + Math.min(...type.cases.map((entry) => (entry.type ? minBytes(entry.type) : 0)));
    case 'future':
      throw new TypeError('a future crosses the channel as the result of a call only');
    default:
      return BYTES[type.kind] ?? 1;
  }
}

/** Statement that writes the value of an expression. */
export function writeStatement(type: WitType, value: string, resources: ResourceNumber): string {
  const write = (inner: WitType, at: string) => writeStatement(inner, at, resources);
  switch (type.kind) {
    case 'list': {
      if (NUMBER_KINDS.has(type.element.kind)) return `w.numbers(${value});`;
      // A list within a list needs another name for its elements.
      let each = 'e';
      while (new RegExp(`\\b${each}\\b`).test(value)) each += 'e';
      return `w.count(${value}.length); for (const ${each} of ${value}) { ${write(type.element, each)} }`;
    }
    case 'option':
      refuseNested(type.value);
      return `if (${value} === undefined) w.case(0); else { w.case(1); ${write(type.value, value)} }`;
    case 'result': {
      const side = (inner: WitType | null) => (inner ? write(inner, `${value}.val`) : '');
      return `if (${value}.tag === 'ok') { w.case(0); ${side(type.ok)} } else { w.case(1); ${side(type.err)} }`;
    }
    case 'tuple':
      return type.items.map((item, i) => write(item, `${value}[${i}]`)).join(' ');
    case 'record':
    case 'variant':
    case 'enum':
      return `write${codecName(type)}(w, ${value});`;
    case 'borrow':
      return `w.handle(${resources(type.interface, type.resource)}, ${value});`;
    case 'own':
      // A call that returns a resource writes no value: the sandbox has chosen the number of the new object.
      throw new TypeError('a resource crosses the channel as an argument that is lent, or as the result of a call');
    case 'future':
      throw new TypeError('a future crosses the channel as the result of a call only');
    default:
      return `w.${type.kind}(${value});`;
  }
}

/** Expression that reads a value. */
export function readExpression(type: WitType, resources: ResourceNumber): string {
  const read = (inner: WitType) => readExpression(inner, resources);
  switch (type.kind) {
    case 'list':
      if (NUMBER_KINDS.has(type.element.kind)) return `r.${type.element.kind}List()`;
      return `r.list(${minBytes(type.element)}, () => ${read(type.element)})`;
    case 'option':
      refuseNested(type.value);
      return `(r.case(2) === 0 ? undefined : ${read(type.value)})`;
    case 'result': {
      const side = (inner: WitType | null) => (inner ? read(inner) : 'undefined');
      return `(r.case(2) === 0 ? { tag: 'ok', val: ${side(type.ok)} } : { tag: 'err', val: ${side(type.err)} })`;
    }
    case 'tuple':
      return `[${type.items.map(read).join(', ')}]`;
    case 'record':
    case 'variant':
    case 'enum':
      return `read${codecName(type)}(r)`;
    case 'borrow':
      return `r.handle(${resources(type.interface, type.resource)})`;
    case 'own':
    case 'future':
      // A call that returns a resource has no answer to read. If a call returns a future, its answer is the value of
      // that future.
      throw new TypeError(`a value of ${type.kind} is not read from the channel`);
    default:
      return `r.${type.kind}()`;
  }
}

/** The functions that write and read the values of a declared type. @param name TypeScript name of the type */
export function namedCodec(type: NamedType, name: string, resources: ResourceNumber): string[] {
  const [write, read] = [`write${codecName(type)}`, `read${codecName(type)}`];
  // A value may have a case that its type does not have. The generated writer then passes -1 to `w.case`, which throws.
  const head = [`export function ${write}(w: ValueWriter, v: ${name}): void {`];
  const middle = ['}', `export function ${read}(r: ValueReader): ${name} {`];
  switch (type.kind) {
    case 'record':
      return [
        ...head,
        ...type.fields.map((field) => `  ${writeStatement(field.type, `v.${field.js}`, resources)}`),
        ...middle,
        '  return {',
        ...type.fields.map((field) => `    ${field.js}: ${readExpression(field.type, resources)},`),
        '  };',
        '}',
      ];
    case 'enum': {
      const cases = `${camelCase(type.interface)}${type.js}Cases`;
      return [
        `const ${cases}: readonly ${name}[] = [${type.cases.map((entry) => `'${entry.name}'`).join(', ')}];`,
        ...head,
        `  w.case(${cases}.indexOf(v));`,
        ...middle,
        `  return r.pick(${cases});`,
        '}',
      ];
    }
    case 'variant':
      return [
        ...head,
        '  switch (v.tag) {',
        ...type.cases.flatMap((entry, i) => [
          `    case '${entry.name}':`,
          `      w.case(${i});${entry.type ? ` ${writeStatement(entry.type, 'v.val', resources)}` : ''}`,
          '      return;',
        ]),
        '    default:',
        '      w.case(-1);',
        '  }',
        ...middle,
        `  switch (r.case(${type.cases.length})) {`,
        ...type.cases.map((entry, i) => {
          // `r.case` throws at any other number. The label `default` tells TypeScript that the function always returns.
          const label = i === type.cases.length - 1 ? 'default' : `case ${i}`;
          const value = entry.type ? `, val: ${readExpression(entry.type, resources)}` : '';
          return `    ${label}: return { tag: '${entry.name}'${value} };`;
        }),
        '  }',
        '}',
      ];
  }
}

function refuseNested(type: WitType): void {
  if (type.kind === 'option') throw new TypeError('an option of an option does not cross the channel');
}
