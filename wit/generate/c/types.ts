import { discriminantSize } from '../layout.ts';
import { parts, type VariantType, type WitType } from '../model.ts';
import { docLines } from '../names.ts';
import { constantName, identifier, resourceName, typeName } from './names.ts';

/** Declares C types in the order in which they need one another, each once. Their layout in memory is the canonical ABI's. */
export class Types {
  readonly #declared = new Set<string>();

  /** Lines that declare a type and the types that it is made of, except those that are declared already. */
  declare(type: WitType | null): string[] {
    if (!type) return [];
    const name = typeName(type);
    const lines = parts(type).flatMap((part) => this.declare(part));
    if (this.#declared.has(name)) return lines;
    const text = declaration(type, name);
    if (!text) return lines;
    this.#declared.add(name);
    return [...lines, ...text];
  }
}

function declaration(type: WitType, name: string): string[] | null {
  switch (type.kind) {
    case 'list':
      return [`typedef struct { const ${typeName(type.element)} *data; uint32_t length; } ${name};`];
    case 'option':
      return [`typedef struct { bool some; ${typeName(type.value)} value; } ${name};`];
    case 'tuple':
      return [
        `typedef struct { ${type.items.map((item, index) => `${typeName(item)} item${index};`).join(' ')} } ${name};`,
      ];
    case 'result': {
      const sides = [type.ok && `${typeName(type.ok)} ok;`, type.err && `${typeName(type.err)} err;`].filter(Boolean);
      return [`typedef struct { bool failed;${sides.length > 0 ? ` union { ${sides.join(' ')} };` : ''} } ${name};`];
    }
    case 'own':
    case 'borrow':
      return [`typedef struct { int32_t handle; } ${resourceName(type.interface, type.resource)};`];
    case 'record':
      return [
        ...comment(type.docs),
        'typedef struct {',
        ...type.fields.flatMap((field) => [
          ...comment(field.docs, '  '),
          `  ${typeName(field.type)} ${identifier(field.name)};`,
        ]),
        `} ${name};`,
      ];
    case 'enum':
    case 'variant':
      return [
        ...comment(type.docs),
        'enum {',
        ...type.cases.flatMap((entry, index) => [
          ...comment(entry.docs, '  '),
          `  ${constantName(type, entry.name)} = ${index},`,
        ]),
        '};',
        type.kind === 'enum'
          ? `typedef uint${discriminantSize(type.cases.length) * 8}_t ${name};`
          : `typedef struct { uint${discriminantSize(type.cases.length) * 8}_t tag; ${payload(type)} } ${name};`,
      ];
    default:
      return null;
  }
}

/** Members after a variant's tag: one member if all cases carry the same type, else one for each case with a value. */
function payload(type: VariantType): string {
  const member = commonPayload(type);
  if (member) return `${typeName(member)} value;`;
  const members = type.cases.flatMap((entry) =>
    entry.type ? [`${typeName(entry.type)} ${identifier(entry.name)};`] : [],
  );
  return members.length > 0 ? `union { ${members.join(' ')} };` : '';
}

/** The type that every case of a variant carries; null when they differ. */
export function commonPayload(type: VariantType): WitType | null {
  const names = new Set(type.cases.map((entry) => entry.type && typeName(entry.type)));
  return names.size === 1 ? (type.cases[0]?.type ?? null) : null;
}

/** Documentation as a C comment. */
export function comment(docs: string | undefined, indent = ''): string[] {
  if (!docs) return [];
  const lines = docLines(docs);
  return lines.map((line, index) => {
    const start = index === 0 ? '/* ' : ' * ';
    return `${indent}${start}${line}${index === lines.length - 1 ? ' */' : ''}`;
  });
}
