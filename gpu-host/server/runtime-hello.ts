import { statedVersions, type Versions } from '#scheduler/links/versions.ts';
import { ProtocolFault } from '../protocol/errors.ts';
import { HELLO_VERSION } from '../protocol/wire.ts';

/** The first frame of a connection: the runtime's versions and name. */
export interface RuntimeHello {
  readonly versions: Versions;
  /** Name that all connections of the same runtime have, and no others; runtimes before version 12 give none. */
  readonly owner: string | undefined;
}

/** @throws ProtocolFault when the hello cannot be read */
export function readHello(text: string): RuntimeHello {
  const { versions: stated, owner } = fieldsOf(text);
  const versions = statedVersions(stated, HELLO_VERSION);
  if (versions === null) throw new ProtocolFault('malformed', 'a hello without readable versions');
  return { versions, owner: typeof owner === 'string' && owner !== '' ? owner : undefined };
}

function fieldsOf(text: string): { readonly versions?: unknown; readonly owner?: unknown } {
  try {
    return (JSON.parse(text) as object | null) ?? {};
  } catch {
    throw new ProtocolFault('malformed', 'a hello that is not JSON');
  }
}
