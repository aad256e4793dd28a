// A web server of Jetty, as brokers have it, that reports every request it reads: which it was on the line, not what it
// means. Written for Jakarta EE 10, as Pulsar 5.0; jetty_origin.py puts the packages of Jetty 9.4 in place of its own.

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

public class SeenRequests {
    static final List<String> seen = new ArrayList<>();
    static int reading;
    static int reports;

    static synchronized void begin() {
        reading++;
    }

    /** Its number. */
    static synchronized int end(HttpServletRequest request, byte[] body, boolean whole) {
        List<String> clients = Collections.list(request.getHeaders("X-Forwarded-For"));
        String query = request.getQueryString();
        String target = request.getRequestURI() + (query == null ? "" : "?" + query);
        seen.add(String.join("\t", String.valueOf(request.getLocalPort()), request.getRemoteAddr(),
                clients.isEmpty() ? "" : clients.get(clients.size() - 1), request.getMethod(),
                String.join(",", Collections.list(request.getHeaderNames())).toLowerCase(Locale.ROOT),
                Base64.getEncoder().encodeToString(target.getBytes(StandardCharsets.UTF_8)),
                Base64.getEncoder().encodeToString(body), String.valueOf(whole)));
        reading--;
        SeenRequests.class.notifyAll();
        return seen.size();
    }

    /** All requests of which this is not said yet, once none is being read. */
    static synchronized String report(int from) throws InterruptedException {
        while (reading > 0) {
            SeenRequests.class.wait();
        }
        return String.join("\n", seen.subList(from, seen.size()));
    }

    public static class Telling extends HttpServlet {
        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
            if (request.getLocalPort() == reports) {
                try {
                    response.getWriter().write(report(Integer.parseInt(request.getRequestURI().substring(1))));
                } catch (InterruptedException ended) {
                    throw new IOException(ended);
                }
                return;
            }
            begin();
            ByteArrayOutputStream body = new ByteArrayOutputStream();
            boolean whole = false;
            try {
                byte[] piece = new byte[4096];
                for (int size; (size = request.getInputStream().read(piece)) >= 0; ) {
                    body.write(piece, 0, size);
                }
                whole = true;
            } finally {
                int number = end(request, body.toByteArray(), whole);
                response.setHeader("Seen", String.valueOf(number));
            }
            if (request.getProtocol().equals("HTTP/1.0") && request.getHeader("Connection") == null) {
                response.setHeader("Connection", "close"); // Jetty closes the connection, but does not say so
            }
            response.setContentLength(0);
        }
    }

    /** For each idle timeout in milliseconds a port; the first one is for reports. */
    public static void main(String[] timeouts) throws Exception {
        Server server = new Server();
        HttpConfiguration configuration = new HttpConfiguration();
        configuration.setRequestHeaderSize(65536);
        List<ServerConnector> connectors = new ArrayList<>();
        for (String timeout : timeouts) {
            ServerConnector connector = new ServerConnector(server, 1, 1, new HttpConnectionFactory(configuration));
            connector.setHost("127.0.0.1");
            connector.setIdleTimeout(Long.parseLong(timeout));
            server.addConnector(connector);
            connectors.add(connector);
        }
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new Telling()), "/*");
        server.setHandler(context);
        server.start();
        reports = connectors.get(0).getLocalPort();
        StringBuilder ports = new StringBuilder("serving on ports");
        for (ServerConnector connector : connectors) {
            ports.append(' ').append(connector.getLocalPort());
        }
        System.out.println(ports);
        server.join();
    }
}
