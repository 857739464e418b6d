// What echarts.js is made from: the parts of Apache ECharts 6.1.0 that charts.js uses.
//   npm install echarts@6.1.0 esbuild@0.28.2
//   npx esbuild echarts-entry.js --bundle --minify --format=iife --global-name=echarts --target=es2019 \
//     --charset=ascii --legal-comments=inline \
//     --banner:js="/*! Apache ECharts 6.1.0, Apache-2.0, echarts.apache.org; has ZRender 6.1.0, BSD-3-Clause, (c) Baidu */" \
//     --outfile=echarts.js
import { use } from "echarts/core";
import { BarChart, CustomChart, LineChart, ScatterChart } from "echarts/charts";
import {
  GridComponent,
  LegendComponent,
  MarkLineComponent,
  TitleComponent,
  TooltipComponent,
} from "echarts/components";
import { SVGRenderer } from "echarts/renderers";

use([BarChart, CustomChart, LineChart, ScatterChart]);
use([GridComponent, LegendComponent, MarkLineComponent, TitleComponent, TooltipComponent, SVGRenderer]);

export { init } from "echarts/core";
