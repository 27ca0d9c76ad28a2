/** Files on their way to workers: from whom, how much is there, how fast, and how long it will take. */
import type { FileFlow } from "../api/types";
import { amount, duration } from "../text/human";
import { rate } from "./network";

export function Flows({ flows }: { flows: FileFlow[] }) {
  return (
    <table class="cards">
      <thead>
        <tr>
          <th scope="col">File on its way</th>
          <th scope="col">From</th>
          <th scope="col">To</th>
          <th scope="col" class="right">
            There
          </th>
          <th scope="col" class="right">
            Rate
          </th>
          <th scope="col" class="right">
            Left
          </th>
        </tr>
      </thead>
      <tbody>
        {flows.map((flow) => (
          <tr key={`${flow.sha256}/${flow.receiver}`}>
            <th scope="row">
              <code>{flow.sha256.slice(0, 12)}</code>
            </th>
            <td data-name="From">{flow.source}</td>
            <td data-name="To">{flow.receiver}</td>
            <td data-name="There" class="right number">
              {amount(flow.have_bytes)} of {amount(flow.size_bytes)}
            </td>
            <td data-name="Rate" class="right number">
              {rate(flow.rate_bytes_s)}
            </td>
            <td data-name="Left" class="right number">
              {left(flow)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const left = ({ size_bytes, have_bytes, rate_bytes_s }: FileFlow): string =>
  rate_bytes_s ? duration((size_bytes - have_bytes) / rate_bytes_s) : "–";
