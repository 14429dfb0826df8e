import { flatten } from '../layout.ts';
import { pascalCase, type WitFunction, type WitType } from '../model.ts';

const KEYWORDS: ReadonlySet<string> = new Set(
  'as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self static struct super trait true type unsafe use where while yield'.split(
    ' ',
  ),
);

/** A WIT name as a Rust identifier of a module, function, parameter or field. */
export function identifier(name: string): string {
  const text = name.replaceAll('-', '_');
  return KEYWORDS.has(text) ? `${text}_` : text;
}

export const functionName = (fn: WitFunction): string => (fn.kind === 'constructor' ? 'new' : identifier(fn.name));

const path = (interfaceName: string, name: string): string =>
  `crate::${identifier(interfaceName)}::${pascalCase(name)}`;

/** The Rust type of a value that an inferlet owns: what a call returns, and what a record holds. */
export function typeName(type: WitType | null): string {
  if (!type) return '()';
  switch (type.kind) {
    case 'bool':
    case 'char':
    case 'f32':
    case 'f64':
      return type.kind;
    case 'string':
      return 'String';
    case 'u8':
    case 'u16':
    case 'u32':
    case 'u64':
      return type.kind;
    case 's8':
    case 's16':
    case 's32':
    case 's64':
      return `i${type.kind.slice(1)}`;
    case 'list':
      return `Vec<${typeName(type.element)}>`;
    case 'option':
      return `Option<${typeName(type.value)}>`;
    case 'tuple':
      return `(${type.items.map((item) => `${typeName(item)},`).join(' ')})`;
    case 'result':
      return `Result<${typeName(type.ok)}, ${typeName(type.err)}>`;
    case 'future':
      return `crate::Pending<${typeName(type.value)}>`;
    case 'own':
    case 'borrow':
      return path(type.interface, type.resource);
    default:
      return path(type.interface, type.name);
  }
}

/** The Rust type of a parameter: a call only reads its arguments, so it borrows what does not fit in a register. */
export function paramTypeName(type: WitType): string {
  switch (type.kind) {
    case 'string':
      return '&str';
    case 'list':
      return `&[${type.element.kind === 'string' ? '&str' : typeName(type.element)}]`;
    case 'option':
      return `Option<${paramTypeName(type.value)}>`;
    case 'own':
      throw new TypeError('the contract takes no resource from an inferlet');
    case 'enum':
      return typeName(type);
    default:
      return flatten(type).length === 1 && type.kind !== 'borrow' ? typeName(type) : `&${typeName(type)}`;
  }
}

/** Documentation as a Rust comment. */
export const comment = (docs: string | undefined, indent = ''): string[] =>
  docs ? docs.split('\n').map((line) => `${indent}///${line === '' ? '' : ` ${line}`}`) : [];
