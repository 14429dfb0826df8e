import type { Named, WitFunction, WitInterface, WitType } from '../model.ts';
import { isSharedError } from '../names.ts';

const KEYWORDS: ReadonlySet<string> = new Set(
  'auto bool break case char const continue default do double else enum extern float for goto if inline int long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while'.split(
    ' ',
  ),
);

/** A WIT name as a C identifier. */
export function identifier(name: string): string {
  const text = name.replaceAll('-', '_');
  return KEYWORDS.has(text) ? `${text}_` : text;
}

/** Joins `pie` and the parts of a name. Leaves out `types`, and a part that the next one repeats: `queue`, `queue-run` → `pie_queue_run`. */
function joinName(...parts: readonly string[]): string {
  // The added hyphens make the comparison one of whole words: `queue` is left out before `queue` and `queue-run`, but `run` stays before `runtime`.
  const neededParts = parts.filter(
    (part, index) => part !== 'types' && !`${parts[index + 1] ?? ''}-`.startsWith(`${part}-`),
  );
  return ['pie', ...neededParts.map((part) => part.replaceAll('-', '_'))].join('_');
}

const declaredName = (type: Named): string => joinName(type.interface, type.name);

export const resourceName = (interfaceName: string, resource: string): string => joinName(interfaceName, resource);

export function functionName(entry: WitInterface | null, fn: WitFunction): string {
  const own = fn.kind === 'constructor' ? 'new' : fn.name;
  if (!entry) return joinName(own);
  return fn.resource ? joinName(entry.name, fn.resource, own) : joinName(entry.name, own);
}

/** A case of a variant or enum as a constant. */
export const constantName = (type: Named, name: string): string =>
  `${declaredName(type)}_${name.replaceAll('-', '_')}`.toUpperCase();

/** Name of the C type of a WIT type. */
export function typeName(type: WitType): string {
  switch (type.kind) {
    case 'bool':
      return 'bool';
    case 'f32':
      return 'float';
    case 'f64':
      return 'double';
    case 'char':
      return 'uint32_t';
    case 'string':
      return 'pie_string';
    case 'u8':
    case 'u16':
    case 'u32':
    case 'u64':
      return `uint${type.kind.slice(1)}_t`;
    case 's8':
    case 's16':
    case 's32':
    case 's64':
      return `int${type.kind.slice(1)}_t`;
    case 'own':
    case 'borrow':
      return resourceName(type.interface, type.resource);
    case 'record':
    case 'variant':
    case 'enum':
      return declaredName(type);
    default:
      return `pie_${shortName(type)}`;
  }
}

/** Name of a type within the name of another: `list_u32`, `fused_step_result`. */
function shortName(type: WitType): string {
  switch (type.kind) {
    case 'list':
      return `list_${shortName(type.element)}`;
    case 'option':
      return `option_${shortName(type.value)}`;
    case 'tuple':
      return ['tuple', ...type.items.map(shortName)].join('_');
    case 'future':
      return `future_${type.value ? shortName(type.value) : 'nothing'}`;
    case 'result': {
      // Nearly all calls of the contract fail with `types.error`, so the name does not mention this error.
      const err = isSharedError(type.err) ? [] : [type.err];
      return ['result', type.ok, ...err].map((part) => (typeof part === 'string' ? part : side(part))).join('');
    }
    default:
      return 'name' in type || type.kind === 'own' || type.kind === 'borrow'
        ? typeName(type).replace(/^pie_/, '')
        : type.kind;
  }
}

const side = (type: WitType | null | undefined): string => (type ? `_${shortName(type)}` : '');
