// Reading values off a chart, by pointer or arrow keys, and playing the replays that are packed into the page.
(function () {
  "use strict";
  var tip = document.getElementById("tip");

  function shown(v) {
    var size = Math.abs(v);
    return size >= 1e6 ? (v / 1e6).toPrecision(4) + "M" : size >= 1e4 ? (v / 1e3).toPrecision(4) + "k" :
      String(Number(v.toPrecision(4)));
  }

  document.querySelectorAll("svg[data-chart]").forEach(function (svg) {
    var chart = JSON.parse(svg.dataset.chart), cursor = null, at = -1;
    var xs = Array.from(new Set([].concat.apply([], chart.series.map(function (s) { return s.x; }))));
    xs.sort(function (a, b) { return a - b; });

    function place(x) {
      var a = chart.x;
      return a[0] + (x - a[2]) / ((a[3] - a[2]) || 1) * (a[1] - a[0]);
    }
    function show(i) {
      at = Math.max(0, Math.min(xs.length - 1, i));
      var x = xs[at], lines = [shown(x) + " game steps"], box = svg.getBoundingClientRect();
      chart.series.forEach(function (s) {
        var best = 0;
        s.x.forEach(function (v, k) { if (Math.abs(v - x) < Math.abs(s.x[best] - x)) best = k; });
        if (s.x.length) lines.push(s.name + "  " + shown(s.y[best]));
      });
      if (!cursor) {
        cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
        cursor.setAttribute("class", "cursor");
        cursor.setAttribute("y1", 8); cursor.setAttribute("y2", svg.viewBox.baseVal.height - 24);
        svg.appendChild(cursor);
      }
      cursor.setAttribute("x1", place(x)); cursor.setAttribute("x2", place(x));
      tip.textContent = lines.join("\n");
      tip.hidden = false;
      var left = box.left + place(x) / svg.viewBox.baseVal.width * box.width + 12;
      tip.style.left = Math.max(4, Math.min(left, window.innerWidth - tip.offsetWidth - 8)) + "px";
      tip.style.top = Math.max(4, box.top + 8) + "px";
    }
    function hide() {
      tip.hidden = true;
      if (cursor) { cursor.remove(); cursor = null; }
    }
    svg.addEventListener("pointermove", function (e) {
      var box = svg.getBoundingClientRect(), px = (e.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      var best = 0;
      xs.forEach(function (x, k) { if (Math.abs(place(x) - px) < Math.abs(place(xs[best]) - px)) best = k; });
      show(best);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", function (e) {
      var step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[e.key];
      if (e.key === "Home") show(0);
      else if (e.key === "End") show(xs.length - 1);
      else if (e.key === "Escape") { hide(); return; }
      else if (step) show(at < 0 ? 0 : at + step);
      else return;
      e.preventDefault();
    });
  });

  var player = document.getElementById("player"), title = document.getElementById("replay-title");
  function unpack(id) {
    var text = atob(document.getElementById(id).textContent), bytes = new Uint8Array(text.length);
    for (var i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  document.querySelectorAll("button[data-replay]").forEach(function (button) {
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", function () {
      document.querySelectorAll("button[data-replay]").forEach(function (b) {
        b.setAttribute("aria-pressed", String(b === button));
      });
      title.textContent = "loading";
      unpack("replay-" + button.dataset.replay).then(function (page) {
        player.hidden = false;
        player.onload = function () {
          title.textContent = button.querySelector("span").textContent;
          player.dataset.shown = button.dataset.replay;
        };
        player.srcdoc = page;
        player.scrollIntoView({ block: "nearest" });
      }, function (problem) { title.textContent = "this browser cannot unpack it: " + problem; });
    });
  });
})();
