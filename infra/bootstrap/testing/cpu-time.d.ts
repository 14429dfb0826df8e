export function endedCpuSeconds(): number;
export function usedCpuSeconds(): number;
