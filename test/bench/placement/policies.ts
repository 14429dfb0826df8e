import { affinityKey, placementKey, servingHost } from '#scheduler/policies/placement.ts';
import { chosenKey } from '#scheduler/policies/testing/chosen-key.ts';
import type { PlacementPolicy } from '#scheduler/runtimes/types.ts';
import type { Policy, View } from './simulate.ts';
import { CHUNK_TOKENS, INPUT_MS, type TracedInvocation, tokensToCompute } from './trace.ts';

/** The platform's own rule: its functions choose the key and the host, from what admission knows. */
export function platform(placement: PlacementPolicy): Policy {
  const serving = new Map<string, number>();
  let open: readonly number[] = [];
  /** Index of the host that serves a key. A key keeps its host until hosts change. */
  const hostOf = (key: string, { nowMs, described, open: openNow }: View): number => {
    if (openNow !== open) serving.clear();
    open = openNow;
    let host = serving.get(key);
    if (host === undefined) {
      const served = { id: key, tenant: key, root: null, startedAt: nowMs };
      const name = servingHost({ gpuHosts: described, placement }, served);
      host = described.findIndex((each) => each.name === name);
      serving.set(key, host);
    }
    return host;
  };
  return {
    name: `platform, by ${placement}`,
    place(head, view) {
      const crowding = (key: string) => crowdingOf(hostOf(key, view), head, view);
      const affinity = head.affinity === undefined ? undefined : affinityKey(head.tenant, head.affinity);
      const chosen =
        placement === 'invocation' ? chosenKey({ id: head.id, affinity }, openHostNames(view), crowding) : null;
      return hostOf(placementKey(placement, head, { id: head.id, placement: chosen }), view);
    },
  };
}

/** Names of the open hosts, as admission knows them. */
const openHostNames = ({ open, described }: View): string[] => open.map((host) => described[host]?.name ?? '');

/** Share of the host's pages in use with the head, as admission counts: only admitted invocations hold pages, and a single one always fits. */
function crowdingOf(host: number, { pages }: TracedInvocation, { hosts }: View): number {
  const { reservedPages = 0, shape } = hosts[host] ?? {};
  const share = (reservedPages + pages) / (shape?.pages ?? 1);
  return reservedPages === 0 ? Math.min(1, share) : share;
}

export const randomHost = (random: () => number): Policy => ({
  name: 'random',
  place: (_, { open }) => open[Math.floor(random() * open.length)] ?? null,
});

export function roundRobin(): Policy {
  let next = 0;
  return { name: 'round robin', place: (_, { open }) => open[next++ % open.length] ?? null };
}

export const leastLoaded = (): Policy => ({
  name: 'least loaded',
  place: (_, view) => leastOf(view.open, (host) => loadOf(host, view)),
});

/** The less loaded of two random hosts (Mitzenmacher, 2001). */
export const twoChoices = (random: () => number): Policy => ({
  name: 'two choices',
  place: (_, view) => {
    const choices = [0, 1].flatMap(() => view.open[Math.floor(random() * view.open.length)] ?? []);
    return leastOf(choices, (host) => loadOf(host, view));
  },
});

/** Pages that running invocations hold and waiting ones need, over the host's pages. */
const loadOf = (index: number, { hosts, waitingPages }: View): number => {
  const { reservedPages = 0, shape } = hosts[index] ?? {};
  return (reservedPages + (waitingPages[index] ?? 0)) / (shape?.pages ?? 1);
};

/**
 * The oracle knows lengths, contexts and speeds. It chooses only among hosts with room, so that no head waits for a full host while another has
 * room. Of these it takes the host on which the invocation costs least: its own time there, plus the delay of the invocations that run there.
 */
export const oracle = (): Policy => ({
  name: 'oracle',
  place: (head, { open, hosts }) =>
    leastOf(
      open.filter((i) => hosts[i]?.hasRoom(head)),
      (i) => {
        const host = hosts[i];
        if (host === undefined) return Number.POSITIVE_INFINITY;
        const chunks = tokensToCompute(head, host.knownTokens(head)) / CHUNK_TOKENS;
        const ownMs = chunks * host.stepMs(1, 0) + head.output * host.stepMs(0, 1);
        let delayingInputs = 0;
        for (const running of host.running) {
          const stepsLeft = host.stepsLeft(running);
          delayingInputs +=
            CHUNK_TOKENS * Math.min(stepsLeft, chunks) + Math.min(Math.max(0, stepsLeft - chunks), head.output);
        }
        return ownMs + (delayingInputs * INPUT_MS) / host.shape.speed;
      },
    ),
});

function leastOf(hosts: readonly number[], costOf: (host: number) => number): number | null {
  let [best, least] = [null as number | null, Number.POSITIVE_INFINITY];
  for (const host of hosts) {
    const cost = costOf(host);
    if (cost < least) [best, least] = [host, cost];
  }
  return best;
}
