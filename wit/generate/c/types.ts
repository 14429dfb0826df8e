import { discriminantSize } from '../layout.ts';
import { parts, type VariantType, type WitType } from '../model.ts';
import { docLines } from '../names.ts';
import { constantName, identifier, resourceName, typeName } from './names.ts';

/** Declares C types, each once and after the types that it is made of. The C types have the memory layout of the Component Model's canonical ABI. */
export class Types {
  readonly #declared = new Set<string>();

  /** Returns the lines that declare the types that `type` is made of, and then `type`. Leaves out types that are declared already. */
  declare(type: WitType | null): string[] {
    if (!type) return [];
    const name = typeName(type);
    const partLines = parts(type).flatMap((part) => this.declare(part));
    if (this.#declared.has(name)) return partLines;
    const ownLines = declaration(type, name);
    if (!ownLines) return partLines;
    this.#declared.add(name);
    return [...partLines, ...ownLines];
  }
}

/** Lines that declare one type under a name; null for a kind that needs no declaration of its own, such as a number. */
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
      const payloads = [
        ...(type.ok ? [`${typeName(type.ok)} ok;`] : []),
        ...(type.err ? [`${typeName(type.err)} err;`] : []),
      ];
      const union = payloads.length > 0 ? ` union { ${payloads.join(' ')} };` : '';
      return [`typedef struct { bool failed;${union} } ${name};`];
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
    case 'variant': {
      const tagType = `uint${discriminantSize(type.cases.length) * 8}_t`;
      return [
        ...comment(type.docs),
        'enum {',
        ...type.cases.flatMap((entry, index) => [
          ...comment(entry.docs, '  '),
          `  ${constantName(type, entry.name)} = ${index},`,
        ]),
        '};',
        type.kind === 'enum'
          ? `typedef ${tagType} ${name};`
          : `typedef struct { ${tagType} tag; ${payload(type)} } ${name};`,
      ];
    }
    default:
      return null;
  }
}

/** C members after a variant's tag: `value` if all cases carry the same type, otherwise a union with a member for each case that carries a value. */
function payload(type: VariantType): string {
  const commonType = commonPayload(type);
  if (commonType) return `${typeName(commonType)} value;`;
  const members = type.cases.flatMap((entry) =>
    entry.type ? [`${typeName(entry.type)} ${identifier(entry.name)};`] : [],
  );
  return members.length > 0 ? `union { ${members.join(' ')} };` : '';
}

/** The type that all cases of a variant carry; null when the cases carry different types, or when no case carries a value. */
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
