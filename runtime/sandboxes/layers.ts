import type { Groups } from './cgroups/groups.ts';

/** How strongly confined processes are confined, as the configuration asks for it. The named values are strict. */
export type Isolation = 'auto' | 'namespaces' | 'process';

/** What this machine can do to confine a process. */
export interface Probe {
  /** bubblewrap with the options under which it starts the pinned Node in namespaces of its own, or why there is none. */
  readonly bubblewrap: { readonly command: readonly string[] } | { readonly missing: string };
  /** setpriv with the options that it takes here; null when it is missing or takes none of them. */
  readonly setpriv: readonly string[] | null;
}

/** What confines the processes that this runtime starts for untrusted bytes. */
export interface Layers {
  readonly isolation: Exclude<Isolation, 'auto'>;
  /** Command that goes before the confined program: bubblewrap without its mounts, or `setpriv`; empty when neither is there. */
  readonly wrapper: readonly string[];
  /** What the operator should know: a layer that is missing, and how to get it. Null when nothing is. */
  readonly notice: string | null;
  /** Makes a control group for each of them, where the platform was given one. */
  readonly groups?: Groups;
}

/** The machine cannot confine processes as the configuration demands. */
export class IsolationError extends Error {
  override readonly name = 'IsolationError';
}

const GET_NAMESPACES =
  'install bubblewrap (`apt-get install bubblewrap`) and let this user make user namespaces (`sysctl kernel.unprivileged_userns_clone=1` or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; in a container, run it with a seccomp profile that allows `unshare`)';

/**
 * Decides which layers confine processes. Pure. `auto` takes namespaces where they work, and says what is missing where they do not.
 * @throws {IsolationError} when `namespaces` are demanded and do not work here
 */
export function layersFor(isolation: Isolation, { bubblewrap, setpriv }: Probe): Layers {
  const withoutSetpriv =
    setpriv === null
      ? 'setpriv of util-linux is missing, so confined processes may gain privileges through set-user-ID programs and outlive a killed runtime until their lifeline closes'
      : null;
  if (isolation === 'process') return { isolation, wrapper: setpriv ?? [], notice: withoutSetpriv };
  if ('command' in bubblewrap) return { isolation: 'namespaces', wrapper: bubblewrap.command, notice: null };
  if (isolation === 'namespaces') {
    throw new IsolationError(
      `The configuration demands isolation = "namespaces", and this machine does not provide them: ${bubblewrap.missing}. To get them, ${GET_NAMESPACES}. Or set isolation = "auto" under [runtime] in pie.toml to start with fewer layers.`,
    );
  }
  const fewer = `Confined processes run without namespaces: ${bubblewrap.missing}. Only Node's permission model and resource limits confine them, and nothing stops their signals to other processes of this user. To get namespaces, ${GET_NAMESPACES}`;
  return {
    isolation: 'process',
    wrapper: setpriv ?? [],
    notice: `${[fewer, withoutSetpriv].filter((part) => part !== null).join('. Also, ')}.`,
  };
}

/** A session of its own, with a nice of its own, whatever session its starter made for it. */
export const OWN_SESSION = '--new-session';

/**
 * Everything unshared; a user that is nobody; no capabilities, terminal or environment. bubblewrap sets no-new-privileges itself, and an
 * empty root that `command.ts` fills with what the program needs and makes read-only.
 */
const UNSHARED: readonly string[] = [
  ...['--unshare-all', '--unshare-user', '--uid', '65534', '--gid', '65534', '--hostname', 'sandbox'],
  ...['--cap-drop', 'ALL', OWN_SESSION, '--die-with-parent', '--clearenv'],
];

/** Options of bubblewrap by strength; the first that this machine takes is used. Before 0.8 it could not forbid further user namespaces. */
export const BUBBLEWRAP: readonly (readonly string[])[] = [['--disable-userns', ...UNSHARED], UNSHARED];

/** Options of setpriv, likewise. Only root can give capabilities away for good. */
export const SETPRIV: readonly (readonly string[])[] = [
  ['--no-new-privs', '--pdeathsig', 'KILL', '--bounding-set=-all', '--inh-caps=-all'],
  ['--no-new-privs', '--pdeathsig', 'KILL'],
];
